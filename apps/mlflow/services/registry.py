"""The registry of models of a project: names, versions, aliases."""

from collections.abc import Sequence
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F

from apps.common.clock import now
from apps.common.errors import ApiError
from apps.common.row_bounds import check_row_limit
from apps.mlflow.callers import Caller
from apps.mlflow.models import ModelVersion, RegisteredModel
from apps.mlflow.services.experiments import change_names
from apps.mlflow.services.logged_models import find_model
from apps.mlflow.services.runs import find_run

STAGES = ("None", "Staging", "Production", "Archived")


def find_registered(caller: Caller, name: str) -> RegisteredModel:
    """Return a registered model. Raises ApiError 404."""
    row = caller.filter_visible(RegisteredModel.objects.all()).filter(name=name).order_by("pk").first()
    if row is None:
        raise ApiError(404, "MLFLOW_MODEL_UNKNOWN", "name", model=name)
    return row


def _open_registered(caller: Caller, name: str) -> RegisteredModel:
    row = find_registered(caller, name)
    caller.require_member(row.project_id)
    return row


def create_registered(caller: Caller, name: str, description: str, tags: dict[str, str]) -> RegisteredModel:
    """Register a name in the project of the calling ranks, or the only project of a user. Raises ApiError."""
    if caller.task:
        project_id = caller.task.project_id
    else:
        projects = list(caller.list_projects().values_list("pk", flat=True).order_by("pk")[:20])
        if len(projects) != 1:
            raise ApiError(400, "MLFLOW_EXPERIMENT_NEEDED", "name", allowed=", ".join(projects) or "–")
        project_id = projects[0]
    caller.require_member(project_id)
    check_row_limit("mlflow-registered-models", RegisteredModel.objects.filter(project=project_id))
    moment = now()
    try:
        with transaction.atomic():
            return RegisteredModel.objects.create(
                project_id=project_id, name=name, description=description, tags=change_names({}, tags),
                created_at=moment, changed_at=moment,
            )  # fmt: skip
    except IntegrityError as error:
        raise ApiError(409, "MLFLOW_MODEL_EXISTS", "name", model=name) from error


def change_registered(
    caller: Caller,
    name: str,
    *,
    description: str | None = None,
    tags: dict[str, str | None] | None = None,
    alias: tuple[str, int | None] | None = None,
    new_name: str = "",
) -> RegisteredModel:
    """Change a registered model, and return it. Raises ApiError."""
    found = _open_registered(caller, name)
    if alias and alias[1] is not None:
        find_version(caller, name, alias[1])
    try:
        with transaction.atomic():
            row = RegisteredModel.objects.select_for_update().get(pk=found.pk)
            row.name = new_name or row.name
            row.description = row.description if description is None else description
            row.tags = change_names(row.tags, tags or {})
            row.aliases = change_names(row.aliases, dict([alias] if alias else []))
            row.changed_at = now()
            row.save()
            return row
    except IntegrityError as error:
        raise ApiError(409, "MLFLOW_MODEL_EXISTS", "new_name", model=new_name) from error


def delete_registered(caller: Caller, name: str) -> None:
    """Delete a registered model with its versions; the files that they stand for stay. Raises ApiError."""
    _open_registered(caller, name).delete()


def find_version(caller: Caller, name: str, version: int) -> ModelVersion:
    """Return a version of a registered model. Raises ApiError 404."""
    row = ModelVersion.objects.select_related("model").filter(model=find_registered(caller, name), version=version)
    if (found := row.first()) is None:
        raise ApiError(404, "MLFLOW_VERSION_UNKNOWN", "version", model=name, version=version)
    return found


def find_version_by_alias(caller: Caller, name: str, alias: str) -> ModelVersion:
    """Return the version that an alias stands for. Raises ApiError 404."""
    version = find_registered(caller, name).aliases.get(alias)
    if version is None:
        raise ApiError(404, "MLFLOW_NAME_UNKNOWN", "alias", name=alias)
    return find_version(caller, name, int(version))


def create_version(
    caller: Caller, name: str, source: str, run_id: str, model_id: str, description: str, tags: dict[str, str]
) -> ModelVersion:
    """Add a version to a registered model. Ranks add versions of their own task's runs. Raises ApiError."""
    row = _open_registered(caller, name)
    if model_id:
        run_id = run_id or find_model(caller, model_id).run_id
    if run_id:
        found = find_run(caller, run_id)
        if caller.task and found.task.pk != caller.task.pk:
            raise ApiError(403, "MLFLOW_OTHER_TASK", "run_id", run=run_id, task=caller.task.pk)
    check_row_limit("mlflow-model-versions", row.versions.all())
    moment = now()
    with transaction.atomic():
        RegisteredModel.objects.filter(pk=row.pk).update(newest_version=F("newest_version") + 1, changed_at=moment)
        row.refresh_from_db()
        return ModelVersion.objects.create(
            model=row, version=row.newest_version, source=source, run_id=run_id, logged_id=model_id,
            description=description, tags=change_names({}, tags), created_at=moment, changed_at=moment,
        )  # fmt: skip


def change_version(
    caller: Caller,
    name: str,
    version: int,
    *,
    description: str | None = None,
    tags: dict[str, str | None] | None = None,
    stage: str = "",
    archives_others: bool = False,
) -> ModelVersion:
    """Change a version, and return it. Raises ApiError."""
    _open_registered(caller, name)
    found = find_version(caller, name, version)
    if stage and stage.capitalize() not in STAGES:
        raise ApiError(400, "MLFLOW_STAGE_UNKNOWN", "stage", stage=stage, allowed=", ".join(STAGES))
    with transaction.atomic():
        row = ModelVersion.objects.select_for_update().select_related("model").get(pk=found.pk)
        if archives_others and stage:
            others = row.model.versions.filter(stage=stage.capitalize()).exclude(pk=row.pk)
            others.update(stage="Archived", changed_at=now())
        row.stage = stage.capitalize() or row.stage
        row.description = row.description if description is None else description
        row.tags = change_names(row.tags, tags or {})
        row.changed_at = now()
        row.save()
        return row


def delete_version(caller: Caller, name: str, version: int) -> None:
    """Delete a version and its aliases. Raises ApiError."""
    row = _open_registered(caller, name)
    find_version(caller, name, version).delete()
    with transaction.atomic():
        row = RegisteredModel.objects.select_for_update().get(pk=row.pk)
        row.aliases = {alias: number for alias, number in row.aliases.items() if number != version}
        row.save(update_fields=["aliases"])


def list_latest_versions(caller: Caller, name: str, stages: Sequence[str]) -> list[ModelVersion]:
    """Return the newest version of each stage; by default of all stages."""
    newest: dict[str, ModelVersion] = {}
    wanted = {stage.capitalize() for stage in stages} or set(STAGES)
    for row in find_registered(caller, name).versions.select_related("model").order_by("version"):
        newest[row.stage] = row
    return [row for stage, row in newest.items() if stage in wanted]


def list_registered(caller: Caller, conditions: dict[str, Any], start: int, count: int) -> list[RegisteredModel]:
    """Return registered models by name. `conditions`: of a query."""
    rows = caller.filter_visible(RegisteredModel.objects.filter(**conditions))
    return list(rows.order_by("name", "pk")[start : start + count])


def list_versions(caller: Caller, conditions: dict[str, Any], start: int, count: int) -> list[ModelVersion]:
    """Return versions, newest first. `conditions`: of a query."""
    rows = caller.filter_visible(ModelVersion.objects.select_related("model"), "model__project").filter(**conditions)
    return list(rows.order_by("-created_at", "-pk")[start : start + count])
