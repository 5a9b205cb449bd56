"""Paged lists: `?page=&pageSize=&search=&ordering=` in, `{"items", "total", "page", "pageSize"}` out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.db.models import QuerySet
from django.db.models.expressions import OrderBy
from rest_framework import serializers

Column = str | OrderBy


class OrderingField(serializers.ChoiceField):
    """`ordering = OrderingField("-createdAt", createdAt="created_at", name="name")`: API names to columns.

    A nullable column is `F("started_at").asc(nulls_last=True)`: SQLite and PostgreSQL disagree on where nulls go.
    """

    def __init__(self, initially: str, **columns: Column) -> None:
        self._columns = columns
        choices = [choice for name in columns for choice in (name, f"-{name}")]
        super().__init__(choices=choices, default=initially)

    def columns(self, value: str) -> list[Column]:
        column = self._columns[value.removeprefix("-")]
        if not value.startswith("-"):
            return [column]
        if isinstance(column, str):
            return [column.removeprefix("-") if column.startswith("-") else f"-{column}"]
        # made anew: what Django compares expressions by is what they were made with
        return [OrderBy(column.expression, descending=not column.descending, nulls_last=column.nulls_last)]


class PageQuery(serializers.Serializer):
    """Base of a list's query: add filters, and `ordering` where the list can be ordered."""

    page = serializers.IntegerField(min_value=1, max_value=1_000_000, default=1)
    pageSize = serializers.IntegerField(min_value=1, max_value=200, default=20)
    search = serializers.CharField(max_length=100, default="", allow_blank=True)


class ShortQuery(serializers.Serializer):
    """Query of a short list, which is returned whole by default."""

    page = serializers.IntegerField(min_value=1, max_value=1_000_000, default=1)
    pageSize = serializers.IntegerField(min_value=1, max_value=200, default=200)


def paginate_items(items: Sequence[Any], query: Mapping[str, Any]) -> dict[str, Any]:
    """Return one page of items that are all in memory."""
    number, size = query["page"], query["pageSize"]
    return {"items": items[(number - 1) * size : number * size], "total": len(items), "page": number, "pageSize": size}


def paginate_rows(
    rows: QuerySet[Any, Any], query: Mapping[str, Any], serialize: Callable[[Any], Any] | None = None
) -> dict[str, Any]:
    """Return one page of `rows`, each item through `serialize`. The primary key orders equal rows, so that pages never
    overlap."""
    number, size = query["page"], query["pageSize"]
    if ordering := query.get("ordering"):
        rows = rows.order_by(*ordering, "pk")
    items = list(rows[(number - 1) * size : number * size])
    whole = number == 1 and len(items) < size
    return {
        "items": [serialize(item) for item in items] if serialize else items,
        "total": len(items) if whole else rows.count(),
        "page": number,
        "pageSize": size,
    }
