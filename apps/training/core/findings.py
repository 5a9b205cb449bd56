"""Stores problems found while an attempt runs: each once, with an event, and resolved when it is over."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, OuterRef, Q, Subquery

from apps.common.clock import now
from apps.training.core import notifications, transitions, wakeups
from apps.training.core.engine_access import build_handle, get_backend
from apps.training.models import Attempt, DiagnosisRules, Task
from apps.training.models import Finding as Row
from fermi.diagnosis import Finding, Level, Where, hangs, rules
from fermi.diagnosis.rules import Rule

LONGEST_STALL_PARAM = "longest"
"""Name of a finding's parameter: the longest duration, in seconds."""
SAME_END_TOLERANCE = timedelta(minutes=1)
"""A finding resolved so shortly before its attempt ended was ended with it, for example both by a library's timeout."""


def record_findings(task_id: str, attempt: int, found_findings: Iterable[Finding]) -> None:
    """Store each finding of an attempt, with an event for one that is new or was resolved before; update one that is
    open."""
    with transaction.atomic():
        for one in found_findings:
            values: dict[str, Any] = one.to_json()
            code, key = values.pop("code"), values.pop("key")
            values["since"] = _to_datetime(values["since"])
            row, is_new = Row.objects.get_or_create(
                task_id=task_id, attempt=attempt, code=code, key=key, defaults=values
            )
            if is_new or row.until is not None:
                transitions.record_event(task_id, attempt, "finding", code, one.params)
            if one.level is not Level.INFO and (is_new or row.until is not None or row.level == Level.INFO):
                notifications.notify_hang(task_id, code, one.params)
            if not is_new:
                since = {} if row.until is not None else {"since": row.since}
                values["params"] |= _build_longest_param(row)
                Row.objects.filter(pk=row.pk).update(**{**values, **since, "until": None})
                wakeups.publish_change(task_id, "status")


def list_longest_stalls(task: Task) -> list[float]:
    """Return how long ranks of this task and of its project have stalled and then continued by themselves, in seconds:
    the longest time of each attempt."""
    ended = Attempt.objects.filter(task=OuterRef("task"), number=OuterRef("attempt")).values("ended_at")[:1]
    rows = Row.objects.filter(task__project=task.project_id, code__in=hangs.CODES, until__isnull=False)
    went_on = rows.annotate(ended=Subquery(ended)).filter(Q(ended=None) | Q(until__lt=F("ended") - SAME_END_TOLERANCE))
    return [
        max(_get_duration(row), row.params.get(LONGEST_STALL_PARAM, 0.0))
        for row in went_on.only("since", "until", "params")
    ]


def _build_longest_param(row: Row) -> dict[str, float]:
    """Return the parameter with the longest time that the finding was open before it resolved by itself: one row covers
    all occurrences."""
    before = row.params.get(LONGEST_STALL_PARAM, 0.0)
    longest = max(before, _get_duration(row)) if row.until is not None else before
    return {LONGEST_STALL_PARAM: longest} if longest else {}


def _get_duration(row: Row) -> float:
    return (row.until - row.since).total_seconds() if row.until else 0.0


def resolve_findings(task_id: str, attempt: int, code: str, *keys: str) -> None:
    """Resolve the open findings of `code` for an attempt: those with one of `keys`, or all without keys."""
    going_on = Row.objects.filter(task_id=task_id, attempt=attempt, code=code, until=None)
    if (going_on.filter(key__in=keys) if keys else going_on).update(until=now()):
        notifications.resolve_hang(task_id, code)
        wakeups.publish_change(task_id, "status")


def _to_datetime(seconds: float | None) -> datetime:
    """Return the node's unix time as a datetime; now, if it is missing or more than a day ahead."""
    moment = now()
    if seconds is None or not 0 < seconds < (moment + timedelta(days=1)).timestamp():
        return moment
    return datetime.fromtimestamp(seconds, UTC)


def record_uncollected_files(task: Task, attempt: int) -> None:
    """Record the files that are left out now as findings of the attempt. Raises BackendError."""
    if not task.inside:
        return
    rows = []
    for one in get_backend(task.cluster).left_out(build_handle(task, attempt)):
        node_rank = one.params["nodeRank"]
        key = f"{node_rank}/{one.params['path']}"[-100:]
        rows.append(Finding(one.code, Level.WARN, one.params, where=[Where(None, node_rank)], key=key))
    record_findings(task.pk, attempt, rows)


def read_rules_text(project_id: str) -> str:
    """Return the project's rules as TOML; empty if it has none."""
    return DiagnosisRules.objects.filter(project=project_id).values_list("text", flat=True).first() or ""


def load_rules(project_id: str) -> Sequence[Rule]:
    """Return the project's rules, without those that this release no longer accepts."""
    return rules.parse_rules(text)[0] if (text := read_rules_text(project_id)) else ()
