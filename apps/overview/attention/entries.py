"""What an alert contains, and what a kind of alerts is."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from django.db.models import QuerySet

from apps.common.texts import render_text
from apps.overview.machines import VisibleMachine
from apps.overview.scope import Scope
from fermi.engines.check_results import CheckLevel

Subject = Literal["task", "environment", "worker", "cluster", "project", "platform"]
SUBJECTS: tuple[Subject, ...] = ("task", "environment", "worker", "cluster", "project", "platform")
Rows = QuerySet[Any, Any] | Sequence[Any]


class AlertContext(NamedTuple):
    """For whom and when alerts are listed, and the machines' state, which several kinds read."""

    scope: Scope
    moment: datetime
    machines: Callable[[], Sequence[VisibleMachine]]


class AlertKind(NamedTuple):
    """A kind of alerts. `find`: all rows, in a stable order; `serialize`: the alert of one row. `operators`: only
    operators and administrators get it. `owned`: of tasks, which have an owner."""

    name: str
    level: CheckLevel
    find: Callable[[AlertContext], Rows]
    serialize: Callable[[Any], dict[str, Any]]
    operators: bool = False
    owned: bool = False

    def concerns(self, scope: Scope) -> bool:
        """Return True if the alerts of this kind are listed in the scope."""
        return (scope.all or not self.operators) and (self.owned or not scope.mine)


def build_alert(
    subject: Subject,
    key: str,
    name: str,
    since: datetime | None,
    texts: tuple[str, str],
    path: str | None,
    holder: Any = "",
) -> dict[str, Any]:
    """Return an alert. `texts`: message and hint; `holder`: id of the task that holds the subject."""
    return {
        "subject": {"type": subject, "id": key, "name": name},
        "message": texts[0],
        "hint": texts[1],
        "since": since,
        "path": path,
        "holder": holder or "",
    }


def render_alert_text(code: str, **params: Any) -> tuple[str, str]:
    """Return message and hint of an alert."""
    return render_text(code, params)
