"""Models that scripts log (MLflow 3): their rows; their files are artifacts."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from apps.common.clock import now
from apps.common.errors import ApiError
from apps.common.row_bounds import check_row_limit
from apps.mlflow.callers import Caller
from apps.mlflow.models import LoggedModel
from apps.mlflow.services import experiments
from apps.mlflow.services.experiments import change_names

STATUSES = ("LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED")
MAX_METRICS = 200


def find_model(caller: Caller, model_id: str) -> LoggedModel:
    """Return a model that the caller may read. Raises ApiError 404."""
    rows = LoggedModel.objects.select_related("task__project", "experiment").filter(deleted_at__isnull=True)
    row = caller.filter_visible(rows, "task__project").filter(pk=model_id).first()
    if row is None:
        raise ApiError(404, "MLFLOW_MODEL_UNKNOWN", "model_id", model=model_id)
    return row


def create_model(
    caller: Caller, experiment_id: str, name: str, kind: str, run_id: str, params: dict[str, str], tags: dict[str, str]
) -> LoggedModel:
    """Create a model of the calling ranks' task, whose files are yet to be stored."""
    task = caller.require_task()
    experiment = experiments.get_experiment(caller, experiment_id or experiments.DEFAULT_ID)
    check_row_limit("mlflow-models", LoggedModel.objects.filter(task=task))
    moment = now()
    return LoggedModel.objects.create(
        pk=f"m-{uuid.uuid4().hex}", task=task, experiment=experiment.row, run_id=run_id, name=name or "model",
        kind=kind, status=STATUSES[0], params=change_names({}, params), tags=change_names({}, tags),
        created_at=moment, changed_at=moment,
    )  # fmt: skip


def change_model(
    caller: Caller,
    model_id: str,
    *,
    status: str = "",
    params: Mapping[str, str] | None = None,
    tags: Mapping[str, str | None] | None = None,
    deleted: bool = False,
) -> LoggedModel:
    """Change a model of the calling ranks' task, and return it. Raises ApiError."""
    task = caller.require_task()
    if find_model(caller, model_id).task_id != task.pk:
        raise ApiError(403, "MLFLOW_OTHER_TASK", "model_id", run=model_id, task=task.pk)
    with transaction.atomic():
        row = LoggedModel.objects.select_for_update().get(pk=model_id)
        row.status = status or row.status
        row.params, row.tags = change_names(row.params, dict(params or {})), change_names(row.tags, dict(tags or {}))
        row.changed_at = now()
        row.deleted_at = row.changed_at if deleted else None
        row.save(update_fields=["status", "params", "tags", "changed_at", "deleted_at"])
    return row if deleted else find_model(caller, model_id)


def add_metrics(caller: Caller, found: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Add values of metrics, as MLflow's messages, to models by their ids. Ids of no model of the task are left out,
    and so are values beyond MAX_METRICS of a model."""
    task = caller.require_task()
    with transaction.atomic():
        ids = {model_id for model_id, _ in found}
        for row in LoggedModel.objects.select_for_update().filter(pk__in=ids, task=task):
            row.metrics = [*row.metrics, *(one for model_id, one in found if model_id == row.pk)][-MAX_METRICS:]
            row.save(update_fields=["metrics"])
