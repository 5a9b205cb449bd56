"""Keeps what is needed to export a task as a trace; nothing is stored where tracing is off."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from apps.common import tracing
from apps.common.clock import now
from apps.common.tracing import Context
from apps.training.models import Part, Task, TraceExport
from apps.training.states import FINAL, State

VARIABLE = "TRACEPARENT"
"""Environment variable through which ranks receive the trace context (W3C Trace Context)."""
PARTS = {
    "TASK_CREATED": Part.CREATED,
    f"STATE_{State.RUNNING.upper()}": Part.STARTED,
    "ATTEMPT_ENDED": Part.ENDED,
    **{f"STATE_{state.upper()}": Part.FINISHED for state in FINAL},
}
"""The part of a task's trace that each event completes."""


def arrived(traceparent: str) -> dict[str, Any]:
    """Return the trace data of a request that creates a task: when it was received, and its caller's span."""
    if not settings.TRACING:
        return {}
    parent = tracing.read(traceparent)
    return {"receivedAt": now().timestamp(), **({"parent": str(parent)} if parent else {})}


def checked(came: Mapping[str, Any]) -> dict[str, Any]:
    """Return the trace data with the time at which the request was validated."""
    return {**came, "checkedAt": now().timestamp()} if came else {}


def within(task: Task | None) -> dict[str, Any]:
    """Return the trace data of a task that the platform creates for another task."""
    return {"parent": str(origin(task))} if settings.TRACING and task else {}


def noted(task_id: str, attempt: int, code: str) -> None:
    """Store the part of the trace that this event completes, in the transaction that stores the event."""
    if not settings.TRACING or (part := PARTS.get(code)) is None:
        return
    moment = now()
    export = TraceExport(task_id=task_id, attempt=attempt, part=part, created_at=moment, due_at=moment)
    TraceExport.objects.bulk_create([export], ignore_conflicts=True)


def parent(task: Task) -> Context | None:
    """Return the span of the caller that created the task; None if there is none."""
    return tracing.read(task.trace.get("parent", ""))


def origin(task: Task) -> Context:
    """Return the context of the span of the whole task: in its caller's trace, or the first of its own."""
    above = parent(task)
    trace = above.trace if above else tracing.digest(32, "fermi", task.pk)
    return Context(trace, tracing.digest(16, task.pk), above.sampled if above else True)


def at(task: Task, *name: object) -> Context:
    """Return the context of a span of the task, derived from its name, so that it is always the same."""
    return origin(task).at(task.pk, *name)


def variables(task: Task, attempt: int, taken: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables with which ranks add their own spans to the trace; empty if `existing` already has one."""
    if not settings.TRACING or VARIABLE in taken:
        return {}
    return {VARIABLE: str(at(task, attempt, "attempt"))}
