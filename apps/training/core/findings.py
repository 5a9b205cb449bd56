"""Stores problems found while an attempt runs: each once, with an event, and resolved when it is over."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, OuterRef, Q, Subquery

from apps.common.clock import now
from apps.training.core import notifications, transitions, wakeups
from apps.training.models import Attempt, Task
from apps.training.models import Finding as Row
from fermi.diagnosis import Finding, Level, hangs

LONGEST = "longest"
"""Name of a finding's parameter: the longest duration, in seconds."""
TOGETHER = timedelta(minutes=1)
"""A finding resolved so shortly before its attempt ended was ended with it, for example both by a library's timeout."""


def note(task_id: str, attempt: int, found: Iterable[Finding]) -> None:
    """Store each finding of an attempt, with an event for one that is new or was resolved before; update one that is
    open."""
    with transaction.atomic():
        for one in found:
            values: dict[str, Any] = one.to_json()
            code, key = values.pop("code"), values.pop("key")
            values["since"] = _moment(values["since"])
            row, is_new = Row.objects.get_or_create(
                task_id=task_id, attempt=attempt, code=code, key=key, defaults=values
            )
            if is_new or row.until is not None:
                transitions.record(task_id, attempt, "finding", code, one.params)
            if one.level is not Level.INFO and (is_new or row.until is not None or row.level == Level.INFO):
                notifications.hangs(task_id, code, one.params)
            if not is_new:
                since = {} if row.until is not None else {"since": row.since}
                values["params"] |= _longest(row)
                Row.objects.filter(pk=row.pk).update(**{**values, **since, "until": None})
                wakeups.changed(task_id, "status")


def longest_stalls(task: Task) -> list[float]:
    """Return how long ranks of this task and of its project have stalled and then continued by themselves, in seconds:
    the longest time of each attempt."""
    ended = Attempt.objects.filter(task=OuterRef("task"), number=OuterRef("attempt")).values("ended_at")[:1]
    rows = Row.objects.filter(task__project=task.project_id, code__in=hangs.CODES, until__isnull=False)
    went_on = rows.annotate(ended=Subquery(ended)).filter(Q(ended=None) | Q(until__lt=F("ended") - TOGETHER))
    return [max(_lasted(row), row.params.get(LONGEST, 0.0)) for row in went_on.only("since", "until", "params")]


def _longest(row: Row) -> dict[str, float]:
    """Return the parameter with the longest time that the finding was open before it resolved by itself: one row covers
    all occurrences."""
    before = row.params.get(LONGEST, 0.0)
    longest = max(before, _lasted(row)) if row.until is not None else before
    return {LONGEST: longest} if longest else {}


def _lasted(row: Row) -> float:
    return (row.until - row.since).total_seconds() if row.until else 0.0


def over(task_id: str, attempt: int, code: str, *keys: str) -> None:
    """Resolve the open findings of `code` for an attempt: those with one of `keys`, or all without keys."""
    going_on = Row.objects.filter(task_id=task_id, attempt=attempt, code=code, until=None)
    if (going_on.filter(key__in=keys) if keys else going_on).update(until=now()):
        notifications.goes_on(task_id, code)
        wakeups.changed(task_id, "status")


def _moment(seconds: float | None) -> datetime:
    """Return the node's unix time as a datetime; now, if it is missing or more than a day ahead."""
    moment = now()
    if seconds is None or not 0 < seconds < (moment + timedelta(days=1)).timestamp():
        return moment
    return datetime.fromtimestamp(seconds, UTC)
