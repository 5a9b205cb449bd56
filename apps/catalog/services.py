"""Adding datasets, by a path on the server or from a project's files, and models."""

from typing import Any

from django.db import IntegrityError, transaction

from apps.accounts import access, audit
from apps.accounts.models import Project, Role, User
from apps.catalog import project_files, sources
from apps.catalog.models import Dataset, DatasetVersion, Model
from apps.common import wakeups
from apps.common.clock import now
from apps.common.errors import ApiError, ProblemsError
from apps.common.row_bounds import check_row_limit
from fermi.jobs import recipes
from fermi.jobs.spec import JobSpec, Problem

FIRST_VERSION = "v1"


def add_dataset(
    user: User,
    *,
    name: str,
    path: str,
    description: str = "",
    project_id: str | None = None,
    version_name: str = FIRST_VERSION,
) -> Dataset:
    """Create a dataset and its first version, whose preparation starts at once. `project_id` None: for every
    project."""
    _require_maintainer(user, project_id)
    source = _resolve_source(path, project_id)
    with transaction.atomic():
        check_row_limit("datasets", Dataset.objects.filter(project=project_id))
        dataset = Dataset.objects.create(name=name, description=description, project_id=project_id)
        _create_version(user, dataset, version_name, source)
    return dataset


def add_version(user: User, dataset: Dataset, *, path: str, name: str = "") -> DatasetVersion:
    """Add a version to a dataset. Without a name it is `v2`, `v3`, …, by the number of versions."""
    access.require_role(user, dataset.project_id, Role.MAINTAINER)
    source = _resolve_source(path, dataset.project_id)
    name = name or f"v{dataset.versions.count() + 1}"
    try:
        with transaction.atomic():
            return _create_version(user, dataset, name, source)
    except IntegrityError:
        raise ApiError(409, "VERSION_NAME_TAKEN", "name", name=name) from None


def add_model(
    user: User,
    *,
    name: str,
    description: str = "",
    project_id: str | None = None,
    recipe: str,
    parameters: int | None = None,
    defaults: dict[str, Any],
) -> Model:
    _require_maintainer(user, project_id)
    if problems := _check_recipe(recipe, defaults):
        raise ProblemsError(problems)
    with transaction.atomic():
        check_row_limit("models", Model.objects.filter(project=project_id))
        model = Model.objects.create(
            name=name,
            description=description,
            project_id=project_id,
            recipe=recipe,
            parameters=parameters,
            defaults=defaults,
        )
        audit.record_event(user, "model.add", model.pk, project=project_id, name=name)
    return model


def _create_version(user: User, dataset: Dataset, name: str, source: str) -> DatasetVersion:
    check_row_limit("dataset-versions", dataset.versions.all())
    version = DatasetVersion.objects.create(dataset=dataset, name=name, source=source, due_at=now())
    audit.record_event(
        user, "dataset.add-version", version.pk, project=dataset.project_id, dataset=dataset.pk, path=source
    )
    wakeups.enqueue_after_commit("catalog.prepare", version.pk)
    return version


def _resolve_source(path: str, project_id: str | None) -> str:
    return (
        project_files.resolve_source(path, project_id)
        if path.startswith(project_files.SOURCE_PREFIX)
        else str(sources.resolve_path(path))
    )


def _require_maintainer(user: User, project_id: str | None) -> None:
    if project_id is None:
        access.require_administrator(user)
    elif access.get_role(user, project_id) is None or not Project.objects.filter(pk=project_id).exists():
        raise ProblemsError([Problem("projectId", "PROJECT_UNKNOWN", {"project": project_id})])
    else:
        access.require_role(user, project_id, Role.MAINTAINER)


def _check_recipe(recipe: str, defaults: dict[str, Any]) -> list[Problem]:
    if recipe not in recipes.RECIPES:
        return [recipes.build_unknown_recipe("recipe", recipe)]
    job = JobSpec(task_id="", framework="", nodes=(), master="", recipe=recipe, hyperparameters=defaults)
    return [
        Problem(problem.field.replace("hyperparameters", "defaults", 1), problem.code, problem.params)
        for problem in recipes.find_problems(job)
    ]
