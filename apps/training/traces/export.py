"""Exports complete parts of traces to the collector, and drops those that it does not accept.

Nothing waits for the export: at most one thread of a process runs it, after a failure the collector is left alone for a
while, and parts older than an hour are dropped and counted. If a process dies after sending a part and before deleting
it, it is sent again: spans keep their ids.
"""

import logging
import random
import threading
import time
from collections.abc import Sequence
from datetime import timedelta

from django.db.models import QuerySet

from apps.common import tracing
from apps.common.clock import now
from apps.common.tracing import Span
from apps.training.core.trace_context import origin
from apps.training.models import Attempt, Task, TraceExport
from apps.training.traces import spans

log = logging.getLogger(__name__)

CLAIM = timedelta(minutes=2)
LOOK_AGAIN = timedelta(seconds=15)
"""Interval until a start is checked again that has no first step yet."""
AT_ONCE, MOST = 200, 10_000
TRIES = 5
KEPT, COUNTED = timedelta(hours=1), timedelta(days=1)
REST = 30.0  # seconds without trying, after a collector took nothing
_free = threading.Lock()
_rests_until = 0.0
_away = False


def export() -> int:
    """Export the parts that are due; return how many were sent."""
    if time.monotonic() < _rests_until or not _free.acquire(blocking=False):
        return 0
    try:
        _drop()
        sent = 0
        due = TraceExport.objects.filter(due_at__lte=now()).order_by("tries", "due_at")
        for one in due[:AT_ONCE]:
            if (done := _one(one)) is False:
                break
            sent += bool(done)
        return sent
    finally:
        _free.release()


def _one(one: TraceExport) -> bool | None:
    """Export one part. Return False if the collector did not accept it; None if another process has it, it is not
    complete, or it cannot be built."""
    claim = now() + CLAIM + timedelta(microseconds=random.randrange(1_000_000))
    if not TraceExport.objects.filter(pk=one.pk, due_at=one.due_at).update(due_at=claim):
        return None
    mine = TraceExport.objects.filter(pk=one.pk, due_at=claim)
    task = Task.objects.select_related("cluster").filter(pk=one.task_id).first()
    if task is None:
        return None
    attempt = Attempt.objects.defer("plan").filter(task=task, number=one.attempt).first()
    if not spans.is_complete(task, one.part, attempt):
        mine.update(due_at=now() + LOOK_AGAIN)
        return None
    try:
        told = spans.of(task, one.part, attempt) if origin(task).sampled else []
    except Exception:
        log.exception("the %s part of the trace of %s cannot be told", one.part, task.pk)
        _later(one, mine)
        return None
    taken = _send(told)
    if taken:
        mine.delete()
    else:
        _later(one, mine)
    return taken


def _later(one: TraceExport, mine: QuerySet[TraceExport]) -> None:
    if one.tries + 1 >= TRIES:
        mine.update(due_at=None, dropped_at=now(), tries=TRIES)
    else:
        mine.update(due_at=now() + timedelta(seconds=REST), tries=one.tries + 1)


def _send(told: Sequence[Span]) -> bool:
    if not told:
        return True
    try:
        taken = tracing.send(told)
    except Exception:
        log.exception("spans cannot be sent")
        taken = False
    _noted(taken)
    return taken


def _noted(taken: bool) -> None:
    """Log once that the collector is unavailable, and once that it is back."""
    global _away
    global _rests_until
    if taken == _away:
        log.warning("the collector of traces takes them again" if taken else "the collector of traces takes nothing")
    _away = not taken
    if _away:
        _rests_until = time.monotonic() + REST


def _drop() -> None:
    moment = now()
    waiting = TraceExport.objects.filter(due_at__isnull=False)
    dropped = waiting.filter(created_at__lt=moment - KEPT).update(due_at=None, dropped_at=moment)
    if waiting.count() > MOST:
        oldest = list(waiting.order_by("-created_at").values_list("pk", flat=True)[MOST : 2 * MOST])
        dropped += waiting.filter(pk__in=oldest).update(due_at=None, dropped_at=moment)
    if dropped:
        log.warning("%s parts of traces were dropped: no collector took them", dropped)
    TraceExport.objects.filter(dropped_at__lt=moment - COUNTED).delete()
