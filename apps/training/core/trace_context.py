"""Keeps what is needed to export a task as a trace; nothing is stored where tracing is off."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from apps.common import tracing
from apps.common.clock import now
from apps.common.tracing import TraceContext
from apps.training.models import Task, TraceExport, TracePart
from apps.training.states import FINAL_STATES, TaskState

TRACEPARENT_VARIABLE = "TRACEPARENT"
"""Environment variable through which ranks receive the trace context (W3C Trace Context)."""
PART_BY_EVENT = {
    "TASK_CREATED": TracePart.CREATED,
    f"STATE_{TaskState.RUNNING.upper()}": TracePart.STARTED,
    "ATTEMPT_ENDED": TracePart.ENDED,
    **{f"STATE_{state.upper()}": TracePart.FINISHED for state in FINAL_STATES},
}
"""The part of a task's trace that each event completes."""


def read_request_trace(traceparent: str) -> dict[str, Any]:
    """Return the trace data of a request that creates a task: when it was received, and its caller's span."""
    if not settings.TRACING:
        return {}
    parent = tracing.parse_traceparent(traceparent)
    return {"receivedAt": now().timestamp(), **({"parent": str(parent)} if parent else {})}


def add_check_time(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the trace data with the time at which the request was validated."""
    return {**trace, "checkedAt": now().timestamp()} if trace else {}


def build_child_trace(task: Task | None) -> dict[str, Any]:
    """Return the trace data of a task that the platform creates for another task."""
    return {"parent": str(build_task_context(task))} if settings.TRACING and task else {}


def record_part(task_id: str, attempt: int, code: str) -> None:
    """Store the part of the trace that this event completes, in the transaction that stores the event."""
    if not settings.TRACING or (part := PART_BY_EVENT.get(code)) is None:
        return
    moment = now()
    export = TraceExport(task_id=task_id, attempt=attempt, part=part, created_at=moment, due_at=moment)
    TraceExport.objects.bulk_create([export], ignore_conflicts=True)


def get_parent_context(task: Task) -> TraceContext | None:
    """Return the span of the caller that created the task; None if there is none."""
    return tracing.parse_traceparent(task.trace.get("parent", ""))


def build_task_context(task: Task) -> TraceContext:
    """Return the context of the span of the whole task: in its caller's trace, or the first of its own."""
    above = get_parent_context(task)
    trace = above.trace if above else tracing.derive_id(32, "fermi", task.pk)
    return TraceContext(trace, tracing.derive_id(16, task.pk), above.sampled if above else True)


def build_span_context(task: Task, *name: object) -> TraceContext:
    """Return the context of a span of the task, derived from its name, so that it is always the same."""
    return build_task_context(task).at(task.pk, *name)


def build_trace_variables(task: Task, attempt: int, existing: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables with which ranks add their own spans to the trace; empty if `existing` already has one."""
    if not settings.TRACING or TRACEPARENT_VARIABLE in existing:
        return {}
    return {TRACEPARENT_VARIABLE: str(build_span_context(task, attempt, "attempt"))}
