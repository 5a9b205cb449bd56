"""What an overview covers: for administrators everything, for others what belongs to their projects, restricted by the
request."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet

from apps.accounts import access
from apps.accounts.models import User
from apps.clusters import selectors
from apps.clusters.models import DevEnvironment
from apps.training.public import Task


@dataclass(frozen=True)
class Scope:
    """Empty: any. `zone` is a name. `mine`: only tasks that the user owns."""

    user: User
    project: str = ""
    zone: str = ""
    gpu_type: str = ""
    mine: bool = False

    @classmethod
    def from_query(cls, user: User, query: Mapping[str, Any]) -> "Scope":
        """Return the scope of a request. Raises ApiError 404 for a project that the user is not in."""
        project = query.get("project") or ""
        if project:
            access.get_project(user, project)
        return cls(user, project, query.get("zone") or "", query.get("gpuType") or "", bool(query.get("mine")))

    @property
    def all(self) -> bool:
        """True for an administrator."""
        return self.user.is_superuser

    def environments(self) -> QuerySet[DevEnvironment]:
        """Return the environments of the user's projects, and those that are shared with all."""
        rows = selectors.list_visible_environments(self.user)
        rows = rows.filter(zone__name=self.zone) if self.zone else rows
        rows = rows.filter(gpu_type=self.gpu_type) if self.gpu_type else rows
        return rows.filter(Q(project=self.project) | Q(shared=True)) if self.project else rows

    def own_environments(self) -> QuerySet[DevEnvironment]:
        """Return the environments of the user's projects alone."""
        rows = access.filter_visible(self.environments(), self.user)
        return rows.filter(project=self.project) if self.project else rows

    def filter_projects(self, rows: QuerySet[Any], path: str = "project") -> QuerySet[Any]:
        """Return those of `rows` that belong to the user's projects, or to the requested one."""
        rows = access.filter_visible(rows, self.user, path)
        return rows.filter(**{path: self.project}) if self.project else rows

    def tasks(self) -> QuerySet[Task]:
        """Return the training tasks."""
        rows = self.filter_projects(Task.trainings.all())
        return rows.filter(owner=self.user) if self.mine else rows
