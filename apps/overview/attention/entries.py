"""What an entry of the list looks like, and what a kind of entries is."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from django.db.models import QuerySet

from apps.common.texts import text
from apps.overview.machines import Here
from apps.overview.scope import Scope
from fermi.engines.check_results import Level

Subject = Literal["task", "environment", "worker", "cluster", "project", "platform"]
SUBJECTS: tuple[Subject, ...] = ("task", "environment", "worker", "cluster", "project", "platform")
Rows = QuerySet[Any, Any] | Sequence[Any]


class Looked(NamedTuple):
    """Whose list it is, when, and what is known of the machines, which several kinds ask for."""

    scope: Scope
    moment: datetime
    machines: Callable[[], Sequence[Here]]


class Kind(NamedTuple):
    """`find`: all of them, in an order that stays; `shown`: one of them. `operators`: nobody else learns of them.
    `owned`: of tasks, which have an owner."""

    name: str
    level: Level
    find: Callable[[Looked], Rows]
    shown: Callable[[Any], dict[str, Any]]
    operators: bool = False
    owned: bool = False

    def concerns(self, scope: Scope) -> bool:
        return (scope.all or not self.operators) and (self.owned or not scope.mine)


def entry(
    subject: Subject,
    key: str,
    name: str,
    since: datetime | None,
    said: tuple[str, str],
    path: str | None,
    holder: Any = "",
) -> dict[str, Any]:
    """`said`: message and hint; `holder`: the id of the task that has it."""
    return {
        "subject": {"type": subject, "id": key, "name": name},
        "message": said[0],
        "hint": said[1],
        "since": since,
        "path": path,
        "holder": holder or "",
    }


def say(code: str, **params: Any) -> tuple[str, str]:
    return text(code, params)
