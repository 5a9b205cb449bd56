"""Copies the points of tasks ahead into the blocks from which curves are compared, so that whoever compares them first
does not wait for it: of tasks that have ended all points, of running ones once there are many new ones.

Copies follow the points, whoever makes them (`apps.training.core.metric_blocks`), so a process that ends in between
loses nothing but time, and of two at the same time one drops what it has.
"""

import logging
from collections.abc import Sequence
from datetime import timedelta
from time import monotonic

from django.db.models import F

from apps.common.clock import now
from apps.runs import walks
from apps.training.public import FINAL_STATES, STATES_WITH_ATTEMPT, Task, TaskKind, copy_points

log = logging.getLogger(__name__)

WALK = "curves"
ROUND_SECONDS = 20.0
"""Longest time of one round, half for each of the two kinds of tasks; the next round goes on."""
BATCH_SIZE, RUNNING_BATCH_SIZE = 5, 100
MAX_TASK_ROWS = 500_000
"""Points of one task that are copied ahead in one round; of more, the rest when it is compared."""
MIN_RUNNING_ROWS = 5_000
"""New points of a running task from which on they are copied: each copy packs the last block anew."""
OLDEST = timedelta(days=30)
"""Tasks that had ended so long before the first round are copied when they are compared."""
LATE = timedelta(minutes=2)
"""Longest time from a task's `ended_at` to the commit that stores it, and to its last points."""


def copy_curves() -> int:
    """Copy points of further tasks; return how many tasks that have ended were passed."""
    moment = now()
    ended = walks.walk_tasks(
        WALK, moment - OLDEST, _find_ended, _copy, walks.get_end, seconds=ROUND_SECONDS / 2, latest=moment - LATE
    )
    _copy_running()
    return ended


def _find_ended(place: walks.Step) -> list[Task]:
    return walks.find_ended(place, limit=BATCH_SIZE)


def _copy_running() -> None:
    """Copy points of running tasks, those first whose newest copied point is the oldest."""
    rows = Task.objects.filter(kind=TaskKind.TRAINING, state__in=STATES_WITH_ATTEMPT)
    order = F("metric_block_state__until").asc(nulls_first=True)
    keys, until = list(rows.order_by(order, "pk").values_list("pk", flat=True)), monotonic() + ROUND_SECONDS / 2
    for begin in range(0, len(keys), RUNNING_BATCH_SIZE):
        part = keys[begin : begin + RUNNING_BATCH_SIZE]
        _copy(list(Task.objects.filter(pk__in=part).only("pk", "state")))
        if monotonic() >= until:
            break


def _copy(tasks: Sequence[Task]) -> None:
    """Copy points of the tasks; what fails for one of them does not stop the others."""
    try:
        copy_points(_list_ends(tasks), min_rows=MIN_RUNNING_ROWS, max_rows=MAX_TASK_ROWS)
    except Exception:
        if len(tasks) == 1:
            log.exception("the curves of %s are copied when they are compared", tasks[0].pk)
            return
        for task in tasks:
            _copy([task])


def _list_ends(tasks: Sequence[Task]) -> dict[str, bool]:
    return {task.pk: task.state in FINAL_STATES for task in tasks}
