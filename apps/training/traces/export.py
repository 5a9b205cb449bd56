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
from apps.training.core.trace_context import build_task_context
from apps.training.models import Attempt, Task, TraceExport
from apps.training.traces import spans

log = logging.getLogger(__name__)

CLAIM_DURATION = timedelta(minutes=2)
RECHECK_INTERVAL = timedelta(seconds=15)
"""Interval until a start is checked again that has no first step yet."""
BATCH_SIZE, MAX_WAITING_PARTS = 200, 10_000
MAX_TRIES = 5
MAX_AGE, DROPPED_RETENTION = timedelta(hours=1), timedelta(days=1)
COLLECTOR_PAUSE_SECONDS = 30.0  # seconds without trying, after a collector took nothing
_lock = threading.Lock()
_paused_until = 0.0
_collector_away = False


def export_due_parts() -> int:
    """Export the parts that are due; return how many were sent."""
    if time.monotonic() < _paused_until or not _lock.acquire(blocking=False):
        return 0
    try:
        _drop_expired()
        sent = 0
        due = TraceExport.objects.filter(due_at__lte=now()).order_by("tries", "due_at")
        for one in due[:BATCH_SIZE]:
            if (done := _export_part(one)) is False:
                break
            sent += bool(done)
        return sent
    finally:
        _lock.release()


def _export_part(part: TraceExport) -> bool | None:
    """Export one part. Return False if the collector did not accept it; None if another process has it, it is not
    complete, or it cannot be built."""
    claim = now() + CLAIM_DURATION + timedelta(microseconds=random.randrange(1_000_000))
    if not TraceExport.objects.filter(pk=part.pk, due_at=part.due_at).update(due_at=claim):
        return None
    mine = TraceExport.objects.filter(pk=part.pk, due_at=claim)
    task = Task.objects.select_related("cluster").filter(pk=part.task_id).first()
    if task is None:
        return None
    attempt = Attempt.objects.defer("plan").filter(task=task, number=part.attempt).first()
    if not spans.is_part_complete(task, part.part, attempt):
        mine.update(due_at=now() + RECHECK_INTERVAL)
        return None
    try:
        told = spans.build_spans(task, part.part, attempt) if build_task_context(task).sampled else []
    except Exception:
        log.exception("the %s part of the trace of %s cannot be told", part.part, task.pk)
        _postpone(part, mine)
        return None
    taken = _send_spans(told)
    if taken:
        mine.delete()
    else:
        _postpone(part, mine)
    return taken


def _postpone(part: TraceExport, mine: QuerySet[TraceExport]) -> None:
    if part.tries + 1 >= MAX_TRIES:
        mine.update(due_at=None, dropped_at=now(), tries=MAX_TRIES)
    else:
        mine.update(due_at=now() + timedelta(seconds=COLLECTOR_PAUSE_SECONDS), tries=part.tries + 1)


def _send_spans(spans_to_send: Sequence[Span]) -> bool:
    if not spans_to_send:
        return True
    try:
        taken = tracing.export_spans(spans_to_send)
    except Exception:
        log.exception("spans cannot be sent")
        taken = False
    _record_collector_state(taken)
    return taken


def _record_collector_state(taken: bool) -> None:
    """Log once that the collector is unavailable, and once that it is back."""
    global _collector_away
    global _paused_until
    if taken == _collector_away:
        log.warning("the collector of traces takes them again" if taken else "the collector of traces takes nothing")
    _collector_away = not taken
    if _collector_away:
        _paused_until = time.monotonic() + COLLECTOR_PAUSE_SECONDS


def _drop_expired() -> None:
    moment = now()
    waiting = TraceExport.objects.filter(due_at__isnull=False)
    dropped = waiting.filter(created_at__lt=moment - MAX_AGE).update(due_at=None, dropped_at=moment)
    if waiting.count() > MAX_WAITING_PARTS:
        oldest = list(
            waiting.order_by("-created_at").values_list("pk", flat=True)[MAX_WAITING_PARTS : 2 * MAX_WAITING_PARTS]
        )
        dropped += waiting.filter(pk__in=oldest).update(due_at=None, dropped_at=moment)
    if dropped:
        log.warning("%s parts of traces were dropped: no collector took them", dropped)
    TraceExport.objects.filter(dropped_at__lt=moment - DROPPED_RETENTION).delete()
