"""Keeps what runs have used (`Run.gpu_hours`, `cost`, `goodput`), by which the table of runs is filtered and sorted:
of tasks that hold something every few minutes, and of each task once after its end."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic

from django.db import IntegrityError, transaction
from django.db.models import F

from apps.common.clock import now
from apps.runs import walks
from apps.runs.models import Run
from apps.training.public import STATES_WITH_ATTEMPT, Task, TaskKind, sum_task_usage

WALK = "usage"
BATCH_SIZE = 200
ROUND_SECONDS = 60.0
"""Longest time of one round, half for each of the two kinds of tasks; the next round goes on."""
LATE = timedelta(minutes=2)
"""Longest time from a task's `ended_at` to the commit that stores it: what ended so lately is counted twice."""
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


def count_usage() -> int:
    """Count what tasks have used; return how many were counted."""
    latest = now() - LATE
    find = partial(walks.find_ended, limit=BATCH_SIZE)
    ended = walks.walk_tasks(WALK, _BEGIN, find, _count, walks.get_end, seconds=ROUND_SECONDS / 2, latest=latest)
    return ended + _count_held()


def _count_held() -> int:
    """Count tasks with an attempt, those first whose count is the oldest."""
    rows = Task.objects.filter(kind=TaskKind.TRAINING, state__in=STATES_WITH_ATTEMPT)
    keys = list(rows.order_by(F("run__counted_at").asc(nulls_first=True), "pk").values_list("pk", flat=True))
    count, until = 0, monotonic() + ROUND_SECONDS / 2
    for begin in range(0, len(keys), BATCH_SIZE):
        tasks = list(Task.objects.filter(pk__in=keys[begin : begin + BATCH_SIZE]).select_related("owner", "cluster"))
        _count(tasks)
        count += len(tasks)
        if monotonic() >= until:
            break
    return count


def _count(tasks: Sequence[Task]) -> None:
    """Store what the tasks have used, also where some of them are deleted meanwhile."""
    moment, totals = now(), sum_task_usage(tasks)
    rows = [
        Run(task_id=key, gpu_hours=one.gpu_hours, cost=one.cost, goodput=one.goodput, counted_at=moment)
        for key, one in totals.items()
    ]
    try:
        _store(rows)
    except IntegrityError:
        known = set(Task.objects.filter(pk__in=totals).values_list("pk", flat=True))
        for row in rows:
            if row.task_id in known:
                _store_alone(row)


def _store_alone(row: Run) -> None:
    try:
        _store([row])
    except IntegrityError:
        return  # its task is deleted


def _store(rows: Sequence[Run]) -> None:
    with transaction.atomic():
        Run.objects.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["task"],
            update_fields=["gpu_hours", "cost", "goodput", "counted_at"],
        )
