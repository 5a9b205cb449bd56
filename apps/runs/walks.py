"""Walks over all tasks, a few at a time. A row of the database says how far a walk has come, so that a process that
ends in between begins where it stopped, and does at most the last tasks again."""

from collections.abc import Callable
from datetime import datetime
from time import monotonic

from django.db.models import Q, QuerySet

from apps.runs.models import Position
from apps.training.public import FINAL_STATES, Task, TaskKind

Step = tuple[datetime, str]
"""A moment of a task, and its id: where a walk is."""


def walk_tasks(
    name: str,
    begin: datetime,
    find: Callable[[Step], list[Task]],
    process: Callable[[list[Task]], None],
    locate: Callable[[Task], datetime],
    *,
    seconds: float,
    latest: datetime | None = None,
) -> int:
    """Process the next tasks of the walk `name` for at most about `seconds` seconds; return how many there were.

    `find` returns the tasks behind a place, in the order of the walk; `locate` the moment of a task; `begin` is where a
    new walk begins. The stored place never passes `latest`: tasks behind it are processed again by the next round.
    """
    row, _ = Position.objects.get_or_create(name=name, defaults={"moment": begin})
    place, count, until = (row.moment, row.task), 0, monotonic() + seconds
    while tasks := find(place):
        process(tasks)
        count += len(tasks)
        place = locate(tasks[-1]), tasks[-1].pk
        if latest is None or place[0] <= latest:
            Position.objects.filter(pk=name).update(moment=place[0], task=place[1])
        if monotonic() >= until:
            break
    return count


def select_behind(rows: QuerySet[Task], column: str, place: Step, *, descends: bool = False) -> QuerySet[Task]:
    """Return the rows behind a place, in the order of a column and then of their ids."""
    moment, key = place
    beyond = Q(**{f"{column}__{'lt' if descends else 'gt'}": moment}) | Q(**{column: moment}, pk__gt=key)
    bound = Q(**{f"{column}__{'lte' if descends else 'gte'}": moment})  # what an index begins with
    return rows.filter(bound, beyond).order_by(f"{'-' if descends else ''}{column}", "pk")


def find_ended(place: Step, *, limit: int) -> list[Task]:
    """Return the next tasks that have ended, in the order of their ends."""
    parts = (  # a query for each state: an index has them in the order of their ends
        select_behind(Task.objects.filter(kind=TaskKind.TRAINING, state=state), "ended_at", place)[:limit]
        for state in sorted(FINAL_STATES)
    )
    return sorted((task for part in parts for task in part), key=lambda task: (get_end(task), task.pk))[:limit]


def get_end(task: Task) -> datetime:
    assert task.ended_at
    return task.ended_at
