"""Reads the current progress of a task's ranks from its engine; it is not stored."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from apps.common.clock import now
from apps.training.core.engine_access import backend_for, handle_for
from apps.training.models import Task
from apps.training.states import WITH_ATTEMPT
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import PulseSeen


def seen(task: Task) -> Mapping[int, PulseSeen]:
    """Return the progress by rank. Empty for a task that does not run, and where the engine cannot be asked; ranks
    without a probe are left out."""
    if task.state not in WITH_ATTEMPT or not task.attempt:
        return {}
    try:
        return backend_for(task.cluster).pulses(handle_for(task, task.attempt))
    except BackendError:
        return {}


def of(task: Task) -> dict[str, Any]:
    """Return the progress of the task's ranks as the API answers it."""
    found = seen(task)
    moment = now().timestamp()
    ranks = [_shown(found[rank], moment) for rank in sorted(found) if rank < task.world_size]
    return {"taskId": task.pk, "attempt": task.attempt, "ranks": ranks}


def _shown(pulse: PulseSeen, moment: float) -> dict[str, Any]:
    """Return one rank. A runner that sees no change may have looked a while ago, and its clock may be ahead of this
    one."""
    since = None if pulse.stepped_at is None else max(moment, pulse.at) - pulse.stepped_at
    return {
        "rank": pulse.rank,
        "at": _moment(pulse.at),
        "phase": pulse.phase,
        "step": pulse.step,
        "steppedAt": _moment(pulse.stepped_at),
        "sinceStep": None if since is None else max(0.0, round(since, 1)),
        "stepSeconds": pulse.step_seconds,
        "waitingShare": pulse.waiting,
        "printedAt": _moment(pulse.printed_at),
        "gpuBytes": pulse.gpu_bytes,
        "rssBytes": pulse.rss_bytes,
        "cpu": pulse.cpu,
    }


def _moment(unix: float | None) -> datetime | None:
    return None if unix is None else datetime.fromtimestamp(unix, UTC)
