"""Checks what a task needs before it is queued: its environments, its code, its dataset."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.catalog.models import DatasetVersion, VersionStatus
from apps.code import fetch as code_fetch
from apps.code.models import FetchStatus
from apps.training.core import code, task_environments
from apps.training.models import Task
from apps.training.states.reasons import TaskReason
from fermi.jobs.spec import Cause, JobSpec


@dataclass(frozen=True, slots=True)
class Prerequisite:
    """State of one prerequisite. `failed`: why it cannot be had; `waits`: why it is not ready yet; otherwise
    `spec_values`: what the task's spec gets from it."""

    failed: Cause | None = None
    waits: Cause | None = None
    spec_values: Mapping[str, Any] = field(default_factory=dict)


def list_prerequisites(task: Task) -> list[Prerequisite]:
    """Return the state of each prerequisite of the task."""
    return [_check_environments(task), _check_code(task), _check_dataset(task)]


def _check_environments(task: Task) -> Prerequisite:
    if not task_environments.has_new_environments(task):
        return Prerequisite()
    cause = task_environments.find_wait_cause(task)
    if cause is None:
        return Prerequisite(spec_values=task_environments.read_running_nodes(task))
    return Prerequisite(failed=cause) if cause.code == TaskReason.ENVIRONMENT_NOT_MADE else Prerequisite(waits=cause)


def _check_code(task: Task) -> Prerequisite:
    job, fetch = code.resolve_fetch(JobSpec.from_json(task.spec))
    if job is None and fetch and fetch.status == FetchStatus.FETCHING:
        return Prerequisite(waits=Cause(TaskReason.CODE_FETCHING, {"url": code_fetch.describe_source(fetch.source)}))
    if job is None:
        error = (fetch and fetch.error) or {"code": TaskReason.CODE_LOST}
        return Prerequisite(failed=Cause(TaskReason.CODE_FETCH_FAILED, {**error, "cause": error["code"]}))
    if job.code is None:
        return Prerequisite()
    if wrong := code.inspect_code(job).problems if fetch else ():
        return Prerequisite(failed=Cause(wrong[0].code, wrong[0].params))
    return Prerequisite(spec_values={"code": job.to_json()["code"]})


def _check_dataset(task: Task) -> Prerequisite:
    version = DatasetVersion.objects.filter(pk=task.dataset_version_id).first()
    if version is None:
        return Prerequisite()
    if version.status == VersionStatus.FAILED:
        return Prerequisite(failed=Cause(TaskReason.DATASET_FAILED, {"version": version.name, **(version.error or {})}))
    if version.status == VersionStatus.PREPARING:
        params = {"version": version.name, "percent": int(version.progress * 100)}
        return Prerequisite(waits=Cause(TaskReason.DATASET_PREPARING, params))
    return Prerequisite(spec_values={"train_data": version.train_path, "valid_data": version.valid_path})
