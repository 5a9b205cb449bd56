"""Experiments: each project is one, with the project's id, and has others that scripts name."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from apps.accounts.models import Project
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.common.row_bounds import check_row_limit
from apps.mlflow.callers import Caller
from apps.mlflow.models import Experiment

DEFAULT_ID, DEFAULT_NAME = "0", "Default"
MAX_TAGS = 100


@dataclass(frozen=True, slots=True)
class FoundExperiment:
    """An experiment. `row`: None for a project's own."""

    id: str
    name: str
    project_id: str
    row: Experiment | None = None
    created_at: datetime | None = None
    changed_at: datetime | None = None
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def is_deleted(self) -> bool:
        return self.row is not None and self.row.deleted_at is not None


def describe_project(project: Project) -> FoundExperiment:
    """Return the experiment that a project is."""
    return FoundExperiment(project.pk, project.name, project.pk)


def describe_row(row: Experiment) -> FoundExperiment:
    """Return a named experiment."""
    return FoundExperiment(row.pk, row.name, row.project_id, row, row.created_at, row.changed_at, row.tags)


def get_default(caller: Caller) -> FoundExperiment:
    """Return the project of the calling ranks, or the only project of a user. Raises ApiError."""
    if caller.task:
        return describe_project(caller.task.project)
    projects = list(caller.list_projects().order_by("name")[:20])
    if len(projects) != 1:
        allowed = ", ".join(project.pk for project in projects) or "–"
        raise ApiError(404, "MLFLOW_EXPERIMENT_NEEDED", "experiment_id", allowed=allowed)
    return describe_project(projects[0])


def get_experiment(caller: Caller, experiment_id: str) -> FoundExperiment:
    """Return the experiment with this id. Raises ApiError 404."""
    if experiment_id == DEFAULT_ID:
        return get_default(caller)
    if row := caller.filter_visible(Experiment.objects.all()).filter(pk=experiment_id).first():
        return describe_row(row)
    if project := caller.list_projects().filter(pk=experiment_id).first():
        return describe_project(project)
    raise ApiError(404, "MLFLOW_EXPERIMENT_UNKNOWN", "experiment_id", experiment=experiment_id)


def get_experiment_by_name(caller: Caller, name: str) -> FoundExperiment:
    """Return the experiment of this name. Raises ApiError 404."""
    found = _find_by_name(caller, name)
    if found is None:
        raise ApiError(404, "MLFLOW_EXPERIMENT_UNKNOWN", "experiment_name", experiment=name)
    return found


def _find_by_name(caller: Caller, name: str) -> FoundExperiment | None:
    if name == DEFAULT_NAME:
        return get_default(caller)
    if project := caller.list_projects().filter(name=name).order_by("pk").first():
        return describe_project(project)
    row = caller.filter_visible(Experiment.objects.all()).filter(name=name).order_by("pk").first()
    return describe_row(row) if row else None


def create_experiment(caller: Caller, name: str, tags: dict[str, str]) -> FoundExperiment:
    """Create an experiment in the project of the task whose ranks call. Raises ApiError 409 if the name is used."""
    task = caller.require_task()
    if name == DEFAULT_NAME or _find_by_name(caller, name):
        raise ApiError(409, "MLFLOW_EXPERIMENT_EXISTS", "name", experiment=name)
    rows = Experiment.objects.filter(project=task.project_id)
    check_row_limit("mlflow-experiments", rows)
    moment = now()
    try:
        with transaction.atomic():
            row = Experiment.objects.create(
                project_id=task.project_id, name=name, tags=tags, created_at=moment, changed_at=moment
            )
    except IntegrityError as error:  # another rank was faster
        raise ApiError(409, "MLFLOW_EXPERIMENT_EXISTS", "name", experiment=name) from error
    return describe_row(row)


def change_tags(caller: Caller, experiment_id: str, changed: dict[str, str | None]) -> None:
    """Set tags of a named experiment, or delete those that are None. Raises ApiError."""
    task = caller.require_task()
    found = get_experiment(caller, experiment_id)
    if found.row is None:
        raise ApiError(403, "MLFLOW_PROJECT_EXPERIMENT", "experiment_id")
    with transaction.atomic():
        row = Experiment.objects.select_for_update().get(pk=found.row.pk, project=task.project_id)
        row.tags = change_names(row.tags, changed)
        row.changed_at = now()
        row.save(update_fields=["tags", "changed_at"])


def change_names(names: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
    """Return the mapping with other values; None deletes a name. Raises ApiError 400 if there are too many."""
    merged = {name: value for name, value in {**names, **changed}.items() if value is not None}
    if len(merged) > MAX_TAGS:
        raise ApiError(400, "MLFLOW_TOO_MANY", "tags", high=MAX_TAGS)
    return merged


def list_experiments(caller: Caller, name: str, start: int, count: int) -> list[FoundExperiment]:
    """Return experiments that are not deleted, projects first; `name`: a pattern of LIKE."""
    projects = [describe_project(project) for project in caller.list_projects().order_by("name")[: start + count]]
    rows = caller.filter_visible(Experiment.objects.filter(deleted_at__isnull=True))
    if name:
        pattern = translate_pattern(name)
        projects = [project for project in projects if _matches(project.name, name)]
        rows = rows.filter(name__iregex=pattern)
    named = rows.order_by("-created_at", "pk")[: start + count]
    return [*projects, *(describe_row(row) for row in named)][start : start + count]


def translate_pattern(pattern: str) -> str:
    """Return a pattern of LIKE as a regular expression."""
    import re

    parts = (".*" if sign == "%" else "." if sign == "_" else re.escape(sign) for sign in pattern)
    return f"^{''.join(parts)}$"


def _matches(text: str, pattern: str) -> bool:
    import re

    return re.fullmatch(translate_pattern(pattern), text, re.IGNORECASE | re.DOTALL) is not None
