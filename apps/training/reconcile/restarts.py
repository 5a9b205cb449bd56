"""Derives from the ends of a task's attempts whether and when the next one may start. Pure, except for a check of a
disk."""

import signal
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from apps.common import clock_jumps, disks
from apps.common.clock import now
from apps.training.core.engine_access import is_scheduled_by_engine
from apps.training.models import Attempt, Task
from apps.training.states.deadlines import QUICK_END_DURATION, compute_backoff
from apps.training.states.reasons import YIELDING_OUTCOMES, TaskReason
from fermi.diagnosis.collective_groups import format_names
from fermi.jobs.causes import DISK_FULL, NO_SPACE_CODES, RANK_CODES
from fermi.jobs.spec import Cause

MAX_FREE_LOSSES = 10
MIN_FREE_BYTES = 64 << 20
"""Bytes that a disk which was full needs to have free again before an attempt writes to it."""


def count_charged_ends(ends: Iterable[Cause]) -> int:
    """Return how many of these ends count against `maxRestarts`."""
    together = Counter((cause.code, cause.free) for cause in ends)
    return sum(max(count - free, 0) for (_, free), count in together.items())


def mark_losses_free(ends: Iterable[Cause]) -> list[Cause]:
    """Return the ends of an elastic task, with lost environments as free restarts, up to MAX_FREE_LOSSES, so that an
    environment that keeps failing does not restart the task for ever."""
    return [replace(cause, free=max(cause.free, MAX_FREE_LOSSES)) if cause.lost else cause for cause in ends]


def compute_start_time(attempts: Iterable[Attempt]) -> datetime | None:
    """Return the earliest start of the next attempt; None: at once. It is derived from the stored attempts, so that no
    hint can shorten the back-off."""
    newest_first = sorted(attempts, key=lambda attempt: -attempt.number)
    quick = [attempt.ended_at for attempt in takewhile(_was_quick, newest_first)]
    wait = compute_backoff(len(quick))
    return quick[0] + wait if wait and quick[0] else None


def compute_remaining_time(task: Task) -> timedelta | None:
    """Return how long the task may still hold its environments according to its request; None: without limit. In an
    engine's own queue an attempt holds nothing before it runs."""
    if task.max_run_seconds is None:
        return None
    queues = is_scheduled_by_engine(task)
    begun = [(one.running_at if queues else one.created_at, one.ended_at or now()) for one in task.attempts.all()]
    left_out = clock_jumps.list_gaps(task.created_at)
    spans = [clock_jumps.measure_elapsed(since, end, left_out) for since, end in begun if since]
    return timedelta(seconds=task.max_run_seconds) - sum(spans, timedelta())


def describe_repetition(attempts: Iterable[Attempt], newest: Attempt, last_steps: Mapping[int, int]) -> dict[str, Any]:
    """Return `again` (how often in a row, this one included) and `step`, if the newest attempt failed on the same rank
    at the same step as the one before it; otherwise an empty dict."""
    step = last_steps.get(newest.number)
    if newest.outcome not in RANK_CODES or step is None:
        return {}
    earlier = sorted((one for one in attempts if one.number < newest.number), key=lambda one: -one.number)
    same = list(
        takewhile(lambda one: _build_signature(one, last_steps) == _build_signature(newest, last_steps), earlier)
    )
    return {"again": len(same) + 1, "step": step} if same else {}


def _build_signature(attempt: Attempt, last_steps: Mapping[int, int]) -> tuple[Any, ...]:
    what = (attempt.outcome_params.get(name) for name in ("rank", "exitCode", "signal"))
    return (attempt.outcome, *what, last_steps.get(attempt.number))


def describe_killed_ranks(attempt: Attempt) -> dict[str, Any]:
    """Return which ranks a stop had to kill, as last observed; empty if all ended by themselves."""
    ranks = attempt.seen.get("ranks", ()) if attempt.outcome == TaskReason.STOPPED_BY_USER else ()
    killed = [rank["rank"] for rank in ranks if rank.get("exit_code") == -signal.SIGKILL]
    return {"ranks": format_names(killed), "grace": attempt.task.spec["grace_seconds"]} if killed else {}


def find_full_disk(attempts: Iterable[Attempt]) -> tuple[str, dict[str, Any]] | None:
    """Return the code and parameters of a disk on which the newest attempt found no room and that is still full, as far
    as this machine can see: another attempt would end in the same way. Not pure: it reads the disk's free space."""
    newest = max(attempts, key=lambda attempt: attempt.number, default=None)
    if newest is None or newest.outcome not in (DISK_FULL.code, *NO_SPACE_CODES):
        return None
    about = newest.outcome_params
    found = disks.read_free_space(str(about.get("path", "")))
    if not found:
        return None
    if newest.outcome == DISK_FULL.code:
        return (newest.outcome, {**about, **found}) if found["free"] < MIN_FREE_BYTES else None
    now = {"freeMiB": found["free"] >> 20, "totalMiB": found["total"] >> 20}
    kept = about.get("reserveMiB")
    return (newest.outcome, {**about, **now}) if isinstance(kept, int) and now["freeMiB"] < kept else None


def _was_quick(attempt: Attempt) -> bool:
    """Return True if the attempt ended within QUICK_END_DURATION. One that was ended for a new size, or was preempted
    or paused, has not failed."""
    if attempt.outcome in (TaskReason.RESIZING, *YIELDING_OUTCOMES):
        return False
    return attempt.ended_at is not None and attempt.ended_at - attempt.created_at <= QUICK_END_DURATION
