"""Stores what the curves of a task come to (`MetricSummary`), by which runs are compared, filtered and sorted.

What each rank's log came to is in the state of its cursor (`LogCursor.state["summary"]`), written in the transaction
that stores the points, and exact: it counts values that were thinned out, too. The rows follow from the states of the
attempts' leading ranks, the lowest ranks that report points, and from the names that users gave to patterns. So a crash
between the two loses nothing, and a changed pattern changes all rows. Attempts that were read before there were
summaries have no such state; theirs comes from the points that are stored. Values that came to the platform by another
way than a log (`core.tracked_values`) have their state with the attempt.
"""

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import Min

from apps.training.core import log_patterns, transitions
from apps.training.models import Attempt, LogCursor, MetricPoint, MetricSummary, Task
from fermi.metrics import summaries
from fermi.metrics.summaries import State, Summary

__all__ = [
    "STATE_KEY",
    "State",
    "add_values",
    "load_state",
    "load_states",
    "read_points",
    "rebuild_summaries",
    "remove_series",
    "store_summaries",
]

STATE_KEY = "summary"
READ_AT_ONCE = 2000


def add_values(
    cursor_state: dict[str, Any], source: str, pattern: str, step: int, values: Mapping[str, float | None]
) -> bool:
    """Add the finite values of a point to the state of its rank's cursor; return whether there were any."""
    return summaries.add_values(cursor_state.setdefault(STATE_KEY, {}), source, pattern, step, values)


def remove_series(cursor_state: Mapping[str, Any], source: str, name: str) -> None:
    """Remove the values of a source under a name from the state of a rank's cursor."""
    summaries.remove_series(cursor_state.get(STATE_KEY, {}), source, name)


def rebuild_summaries(task_id: str) -> None:
    """Write the rows of a task anew, from all of its attempts."""
    with transaction.atomic():
        transitions.lock_row_order(task_id)
        number = Task.objects.filter(pk=task_id).values_list("attempt", flat=True).first()
        if number is not None:
            store_summaries(task_id, load_states(task_id, number))


def load_states(task_id: str, attempts: int) -> list[State]:
    """Return what the first `attempts` attempts came to, the first one first."""
    rows = LogCursor.objects.filter(task=task_id, attempt__lte=attempts, state__has_key="kinds")
    found: dict[int, tuple[int, State | None]] = {}
    for attempt, rank, state in rows.order_by("attempt", "rank").values_list("attempt", "rank", f"state__{STATE_KEY}"):
        found.setdefault(attempt, (rank, state))
    cursors = LogCursor.objects.filter(task=task_id, attempt__lte=attempts)
    tracked = Attempt.objects.filter(task=task_id).exclude(tracked={})  # of this release, so their logs have states
    without_points = {*cursors.values_list("attempt", flat=True), *tracked.values_list("number", flat=True)}
    states = []
    for attempt in range(1, attempts + 1):
        rank, state = found.get(attempt, (None, {} if attempt in without_points else None))
        states.append(read_points(task_id, attempt, rank) if state is None else state)
    return states


def load_state(task_id: str, attempt: int, rank: int) -> State | None:
    """Return what a rank's log came to, as it is stored; None where it is not."""
    rows = LogCursor.objects.filter(task=task_id, attempt=attempt, rank=rank)
    found: State | None = rows.values_list(f"state__{STATE_KEY}", flat=True).first()
    return found


def read_points(task_id: str, attempt: int, rank: int | None = None) -> State:
    """Return what the stored points of a rank came to, by default of the lowest one that has points."""
    rows = MetricPoint.objects.filter(task=task_id, attempt=attempt)
    if rank is None:
        rank = rows.aggregate(lowest=Min("rank"))["lowest"]
    state: State = {}
    points = rows.filter(rank=rank).order_by("pk").values_list("source", "pattern", "step", "values")
    for source, pattern, step, values in points.iterator(READ_AT_ONCE):
        summaries.add_values(state, source, pattern, step, values)
    return state


def store_summaries(task_id: str, states: list[State]) -> None:
    """Write the rows that follow from the states of a task's attempts, and remove others. Call it in a transaction that
    has locked the task's row."""
    names = log_patterns.load_changes([task_id]).get(task_id, {}) if summaries.has_patterns(states) else {}
    tracked = dict(Attempt.objects.filter(task=task_id).exclude(tracked={}).values_list("number", "tracked"))
    states = [one for number, state in enumerate(states, 1) for one in (state, tracked.get(number, {}))]
    rows = MetricSummary.objects.filter(task=task_id)
    known: dict[str, Summary] = {
        name: Summary(*numbers) for name, *numbers in rows.values_list("name", *Summary._fields)
    }
    found = summaries.combine_attempts(states, names, known)
    if gone := known.keys() - found.keys():
        rows.filter(name__in=gone).delete()
    MetricSummary.objects.bulk_create(
        [
            MetricSummary(task_id=task_id, name=name, **summary._asdict())
            for name, summary in found.items()
            if known.get(name) != summary
        ],
        update_conflicts=True,
        unique_fields=["task", "name"],
        update_fields=list(Summary._fields),
    )
