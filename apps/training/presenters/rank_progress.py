"""How the ranks of a task get on now: asked of its engine, by who looks, and kept nowhere."""

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
    """None of a task that does not run, of ranks that have no pulse, and where the engine cannot be asked."""
    if task.state not in WITH_ATTEMPT or not task.attempt:
        return {}
    try:
        return backend_for(task.cluster).pulses(handle_for(task, task.attempt))
    except BackendError:
        return {}


def of(task: Task) -> dict[str, Any]:
    found = seen(task)
    moment = now().timestamp()
    ranks = [_shown(found[rank], moment) for rank in sorted(found) if rank < task.world_size]
    return {"taskId": task.pk, "attempt": task.attempt, "ranks": ranks}


def _shown(pulse: PulseSeen, moment: float) -> dict[str, Any]:
    """A runner that sees nothing change may have looked last a while ago; its clock may be ahead of ours."""
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
