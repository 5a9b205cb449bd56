"""Stored rows as MLflow's messages (mlflow/protos/service.proto, model_registry.proto)."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from apps.mlflow.callers import to_milliseconds
from apps.mlflow.models import EntryKind, LoggedModel, ModelVersion, RegisteredModel, RunEntry, RunMetric
from apps.mlflow.services.artifacts import ROOT, SCHEME, ListedFile, get_model_root, get_run_root
from apps.mlflow.services.experiments import FoundExperiment
from apps.mlflow.services.runs import NAME_TAG, FoundRun
from apps.training.public import MetricPoint, MetricSummary, TaskParameter

Message = dict[str, Any]


def serialize_experiment(found: FoundExperiment) -> Message:
    """Return an `Experiment`."""
    return {
        "experiment_id": found.id,
        "name": found.name,
        "artifact_location": f"{SCHEME}{found.id}",
        "lifecycle_stage": "deleted" if found.is_deleted else "active",
        "creation_time": to_milliseconds(found.created_at) or 0,
        "last_update_time": to_milliseconds(found.changed_at) or 0,
        "tags": serialize_pairs(found.tags),
    }


def serialize_pairs(names: Mapping[str, str]) -> list[Message]:
    """Return names and values as a list."""
    return [{"key": key, "value": value} for key, value in names.items()]


def serialize_number(value: float | None) -> float | str:
    """Return a number as protobuf's JSON has it; None is not a number."""
    return "NaN" if value is None or math.isnan(value) else value


def serialize_runs(found: Sequence[FoundRun]) -> list[Message]:
    """Return several runs as `Run`, in few queries."""
    rows = [one.row.pk for one in found if one.row]
    entries: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for run, kind, key, value in RunEntry.objects.filter(run__in=rows).values_list("run", "kind", "key", "value"):
        entries[run, kind][key] = value
    metrics: dict[str, list[Message]] = defaultdict(list)
    for metric in RunMetric.objects.filter(run__in=rows).order_by("key"):
        metrics[metric.run_id].append(serialize_metric(metric.key, metric.value, metric.step, metric.at))
    tasks = [one.task.pk for one in found if one.row is None]
    for task, key, value in TaskParameter.objects.filter(task__in=tasks).values_list("task", "name", "value"):
        entries[task, EntryKind.PARAMETER][key] = value
    for row in MetricSummary.objects.filter(task__in=tasks).order_by("name"):
        metrics[row.task_id].append(serialize_metric(row.name, row.last, row.last_step, 0))
    return [_serialize_run(one, entries, metrics[one.id]) for one in found]


def _serialize_run(
    found: FoundRun, entries: Mapping[tuple[str, str], dict[str, str]], metrics: list[Message]
) -> Message:
    info = serialize_run_info(found)
    tags = {NAME_TAG: info["run_name"], "mlflow.user": info["user_id"], "mlflow.fermi.taskId": found.task.pk}
    tags |= entries.get((found.id, EntryKind.TAG), {})
    row = found.row
    inputs = list(row.inputs) if row else []
    return {
        "info": info,
        "data": {
            "metrics": metrics,
            "params": serialize_pairs(entries.get((found.id, EntryKind.PARAMETER), {})),
            "tags": serialize_pairs(tags),
        },
        "inputs": {
            "dataset_inputs": [one for one in inputs if "dataset" in one],
            "model_inputs": [one for one in inputs if "dataset" not in one],
        },
        "outputs": {"model_outputs": list(row.outputs) if row else []},
    }


def serialize_run_info(found: FoundRun) -> Message:
    """Return a `RunInfo`."""
    task, row = found.task, found.row
    started = (row.started_at if row else None) or task.started_at or task.created_at
    ended = (row.ended_at if row else None) or task.ended_at
    info = {
        "run_id": found.id,
        "run_uuid": found.id,
        "run_name": (row.name if row else "") or task.name,
        "experiment_id": (row.experiment_id if row else None) or task.project_id,
        "user_id": (row.user_name if row else "") or task.owner.username,
        "status": found.status,
        "start_time": to_milliseconds(started),
        "artifact_uri": get_run_root(found),
        "lifecycle_stage": "deleted" if row and row.deleted_at else "active",
    }
    return info | ({"end_time": to_milliseconds(ended)} if ended else {})


def serialize_metric(key: str, value: float | None, step: int, at: int) -> Message:
    """Return a `Metric`."""
    return {"key": key, "value": serialize_number(value), "step": step, "timestamp": at}


def serialize_points(task_id: str, key: str, start: int, count: int) -> list[Message]:
    """Return stored points of the curve of a task that has logged nothing here, as `Metric`."""
    points = MetricPoint.objects.filter(task=task_id, rank=0, values__has_key=key).order_by("pk")
    return [
        serialize_metric(key, point.values[key], point.step, to_milliseconds(point.at) or 0)
        for point in points[start : start + count]
    ]


def serialize_file(file: ListedFile, path: str) -> Message:
    """Return a `FileInfo` under another path."""
    return {"path": path, "is_dir": file.folder} | ({} if file.folder else {"file_size": file.size})


def strip_root(path: str, found: FoundRun) -> str:
    """Return a path in a task's outputs as one below the root of a run's artifacts."""
    return path.removeprefix(f"{ROOT}/{found.row.pk}").lstrip("/") if found.row else path


def serialize_logged_model(row: LoggedModel) -> Message:
    """Return a `LoggedModel`."""
    return {
        "info": {
            "model_id": row.pk,
            "experiment_id": row.experiment_id or row.task.project_id,
            "name": row.name,
            "creation_timestamp_ms": to_milliseconds(row.created_at),
            "last_updated_timestamp_ms": to_milliseconds(row.changed_at),
            "artifact_uri": get_model_root(row.task_id, row.pk),
            "status": row.status,
            "model_type": row.kind,
            "source_run_id": row.run_id,
            "tags": serialize_pairs(row.tags),
        },
        "data": {"params": serialize_pairs(row.params), "metrics": row.metrics},
    }


def serialize_registered(row: RegisteredModel, latest: Sequence[ModelVersion] = ()) -> Message:
    """Return a `RegisteredModel`."""
    return {
        "name": row.name,
        "creation_timestamp": to_milliseconds(row.created_at),
        "last_updated_timestamp": to_milliseconds(row.changed_at),
        "description": row.description,
        "tags": serialize_pairs(row.tags),
        "aliases": [{"alias": alias, "version": str(version)} for alias, version in row.aliases.items()],
        "latest_versions": [serialize_version(version) for version in latest],
    }


def serialize_version(row: ModelVersion) -> Message:
    """Return a `ModelVersion`."""
    return {
        "name": row.model.name,
        "version": str(row.version),
        "creation_timestamp": to_milliseconds(row.created_at),
        "last_updated_timestamp": to_milliseconds(row.changed_at),
        "current_stage": row.stage,
        "description": row.description,
        "source": row.source,
        "run_id": row.run_id,
        "model_id": row.logged_id,
        "status": "READY",
        "tags": serialize_pairs(row.tags),
        "aliases": [alias for alias, version in row.model.aliases.items() if version == row.version],
    }
