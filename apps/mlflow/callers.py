"""Who calls MLflow's API: a user, who reads what the user's projects have, or the ranks of one attempt, which also
write to their task."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from django.db.models import QuerySet

from apps.accounts import access
from apps.accounts.models import Project, Role, User
from apps.common.errors import ApiError
from apps.training.public import Task

Rows = TypeVar("Rows", bound=QuerySet[Any, Any])
MAX_MILLISECONDS = 253_402_300_799_000
"""Of a moment: the last one with four digits of the year."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls. `task`: that of the ranks which call, else None. `is_recorded`: the calling process has recorded what
    it logs (`fermi.probe.mlflow_hooks`). `rank`: its rank, 0 where that is not known."""

    user: User
    task: Task | None = None
    is_recorded: bool = False
    rank: int = 0

    @property
    def attempt(self) -> int:
        """Return the attempt whose ranks call; 0 for a user."""
        return self.task.attempt if self.task else 0

    def filter_visible(self, rows: Rows, path: str = "project") -> Rows:
        """Return the rows that the caller may read. `path` leads to their project."""
        if self.task:
            return rows.filter(**{path: self.task.project_id})
        return access.filter_visible(rows, self.user, path)

    def list_projects(self) -> QuerySet[Project]:
        """Return the projects that the caller may read."""
        return self.filter_visible(Project.objects.all(), "pk")

    def require_task(self) -> Task:
        """Return the task of the ranks that call. Raises ApiError 403 for a user."""
        if self.task is None:
            raise ApiError(403, "MLFLOW_READ_ONLY")
        return self.task

    def require_member(self, project_id: str) -> None:
        """Raise ApiError 403 unless the caller may change what belongs to the project."""
        if self.task is None:
            access.require_role(self.user, project_id, Role.MEMBER)


def to_milliseconds(moment: datetime | None) -> int | None:
    """Return a moment in unix milliseconds."""
    return None if moment is None else round(moment.timestamp() * 1000)


def from_milliseconds(moment: int | None) -> datetime | None:
    """Return a moment that is given in unix milliseconds; None for none, and for an impossible one."""
    if not moment or not 0 < moment < MAX_MILLISECONDS:
        return None
    return datetime.fromtimestamp(moment / 1000, UTC)
