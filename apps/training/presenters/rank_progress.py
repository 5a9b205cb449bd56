"""Reads the current progress of a task's ranks from its engine; it is not stored."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from apps.common.clock import now
from apps.training.core.engine_access import build_handle, get_backend
from apps.training.models import Task
from apps.training.states import STATES_WITH_ATTEMPT
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import RankProgress


def read_progress(task: Task) -> Mapping[int, RankProgress]:
    """Return the progress by rank. Empty for a task that does not run, and where the engine cannot be asked; ranks
    without a probe are left out."""
    if task.state not in STATES_WITH_ATTEMPT or not task.attempt:
        return {}
    try:
        return get_backend(task.cluster).pulses(build_handle(task, task.attempt))
    except BackendError:
        return {}


def serialize_progress(task: Task) -> dict[str, Any]:
    """Return the progress of the task's ranks as the API answers it."""
    found = read_progress(task)
    moment = now().timestamp()
    ranks = [_serialize_rank(found[rank], moment) for rank in sorted(found) if rank < task.world_size]
    return {"taskId": task.pk, "attempt": task.attempt, "ranks": ranks}


def _serialize_rank(pulse: RankProgress, moment: float) -> dict[str, Any]:
    """Return one rank. A runner that sees no change may have looked a while ago, and its clock may be ahead of this
    one."""
    since = None if pulse.stepped_at is None else max(moment, pulse.at) - pulse.stepped_at
    return {
        "rank": pulse.rank,
        "at": _to_datetime(pulse.at),
        "phase": pulse.phase,
        "step": pulse.step,
        "steppedAt": _to_datetime(pulse.stepped_at),
        "sinceStep": None if since is None else max(0.0, round(since, 1)),
        "stepSeconds": pulse.step_seconds,
        "waitingShare": pulse.waiting,
        "printedAt": _to_datetime(pulse.printed_at),
        "gpuBytes": pulse.gpu_bytes,
        "rssBytes": pulse.rss_bytes,
        "cpu": pulse.cpu,
    }


def _to_datetime(unix: float | None) -> datetime | None:
    return None if unix is None else datetime.fromtimestamp(unix, UTC)
