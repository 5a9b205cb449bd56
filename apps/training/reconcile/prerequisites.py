"""Checks what a task needs before it is queued: its environments, its code, its dataset."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.catalog.models import DatasetVersion, VersionStatus
from apps.code import fetch as fetching
from apps.code.models import FetchStatus
from apps.training.core import code, task_environments
from apps.training.models import Task
from apps.training.states.reasons import Reason
from fermi.jobs.spec import Cause, JobSpec


@dataclass(frozen=True, slots=True)
class Need:
    """State of one prerequisite. `failed`: why it cannot be had; `waits`: why it is not ready yet; otherwise `known`:
    what the task's spec gets from it."""

    failed: Cause | None = None
    waits: Cause | None = None
    known: Mapping[str, Any] = field(default_factory=dict)


def needs(task: Task) -> list[Need]:
    """Return the state of each prerequisite of the task."""
    return [_environments(task), _code(task), _dataset(task)]


def _environments(task: Task) -> Need:
    if not task_environments.are_made_for(task):
        return Need()
    cause = task_environments.waits_for(task)
    if cause is None:
        return Need(known=task_environments.known(task))
    return Need(failed=cause) if cause.code == Reason.ENVIRONMENT_NOT_MADE else Need(waits=cause)


def _code(task: Task) -> Need:
    job, fetch = code.fetched(JobSpec.from_json(task.spec))
    if job is None and fetch and fetch.status == FetchStatus.FETCHING:
        return Need(waits=Cause(Reason.CODE_FETCHING, {"url": fetching.whence(fetch.source)}))
    if job is None:
        error = (fetch and fetch.error) or {"code": Reason.CODE_LOST}
        return Need(failed=Cause(Reason.CODE_FETCH_FAILED, {**error, "cause": error["code"]}))
    if job.code is None:
        return Need()
    if wrong := code.inspect(job).problems if fetch else ():
        return Need(failed=Cause(wrong[0].code, wrong[0].params))
    return Need(known={"code": job.to_json()["code"]})


def _dataset(task: Task) -> Need:
    version = DatasetVersion.objects.filter(pk=task.dataset_version_id).first()
    if version is None:
        return Need()
    if version.status == VersionStatus.FAILED:
        return Need(failed=Cause(Reason.DATASET_FAILED, {"version": version.name, **(version.error or {})}))
    if version.status == VersionStatus.PREPARING:
        params = {"version": version.name, "percent": int(version.progress * 100)}
        return Need(waits=Cause(Reason.DATASET_PREPARING, params))
    return Need(known={"train_data": version.train_path, "valid_data": version.valid_path})
