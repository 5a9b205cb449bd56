"""Rows of which many keys are known."""

from collections.abc import Iterable
from typing import Any

from django.db.models import F
from django.db.models.lookups import In


class Among(In):
    """`rows.filter(Among(keys))`: `pk__in`, but on PostgreSQL all keys are one parameter. A thousand of them take as
    long to be written into a statement as it takes to find their rows."""

    def __init__(self, keys: Iterable[str], field: str = "pk") -> None:
        super().__init__(F(field), list(keys))

    def as_postgresql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        left, parameters = self.process_lhs(compiler, connection)
        return f"{left} = ANY(%s)", [*parameters, self.rhs]
