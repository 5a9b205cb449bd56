"""Creates a task: validates the request, stores it in one transaction, and wakes the reconciler."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from django.db import IntegrityError, transaction

from apps.accounts import access, audit
from apps.accounts.models import Role, User
from apps.common.errors import ApiError, ProblemsError
from apps.common.ids import new_id
from apps.training.core import predecessors, task_store, trace_context, transitions
from apps.training.models import Task
from apps.training.services import actions, planned_environments
from apps.training.services.build import TaskDraft, build_draft
from apps.training.services.code_source import DEFAULT_RETRY_CODE, RetryCode
from fermi.planning.request import ParsedRequest, parse_request


def submit_request(
    user: User, request: Mapping[str, Any], key: str | None = None, attach: Callable[[Task], None] | None = None
) -> Task:
    """Create a task from a request that did not come through the API: of a group, of a sweep, of a schedule, or of a
    task that runs again. `key` and `attach` are those of `create_task`. Raises ProblemsError, and ApiError."""
    return create_task(user, parse_request(request), key, attach=attach)


def draft_request(user: User, request: Mapping[str, Any], task_id: str) -> TaskDraft:
    """Return the draft that `submit_request` would run, with all its problems."""
    return build_draft(user, parse_request(request), task_id)


def retry_task(user: User, task_id: str, code: RetryCode = DEFAULT_RETRY_CODE, snapshot: str | None = None) -> Task:
    """Create a task that resumes from the newest checkpoint of another one, with the chosen code or another `snapshot`
    of the project. Raises ApiError if the task cannot be retried, and ProblemsError."""
    return submit_request(user, actions.build_retry_request(user, task_id, code, snapshot))


def create_task(
    user: User,
    parsed: ParsedRequest,
    key: str | None = None,
    trace: Mapping[str, Any] | None = None,
    attach: Callable[[Task], None] | None = None,
) -> Task:
    """Create a task and return it.

    `key`: the Idempotency-Key; with the same request it returns the task that it created before, with another request
    it raises ApiError 409. `trace`: the result of `trace_context.read_request_trace`. `attach`: called with a new task
    in the transaction that stores it, so that what belongs to the task is stored with it; if it raises, nothing is
    stored. Raises ProblemsError with all problems, and ApiError 403 without the role to create tasks.
    """
    digest = hashlib.sha256(json.dumps(parsed.body, sort_keys=True).encode()).hexdigest() if key else ""
    if key and (before := _find_existing(user, key, digest)):
        return before
    draft = build_draft(user, parsed, new_id("task"), start_surveys=False)
    if draft.problems:
        raise ProblemsError(draft.problems)
    access.require_role(user, draft.choice.project, Role.MEMBER)
    try:
        with transaction.atomic():
            task = _store_draft(user, draft, key, digest, trace_context.add_check_time(trace or {}))
            if attach:
                attach(task)
            return task
    except IntegrityError:
        if key and (before := _find_existing(user, key, digest)):  # the same request came twice at the same time
            return before
        raise


def _find_existing(user: User, key: str, digest: str) -> Task | None:
    task = Task.objects.filter(owner=user, idempotency_key=key).first()
    if task and task.request_hash != digest:
        raise ApiError(409, "IDEMPOTENCY_CONFLICT", "Idempotency-Key", key=key, made=task.pk)
    return task


def _store_draft(user: User, draft: TaskDraft, key: str | None, digest: str, trace: Mapping[str, Any]) -> Task:
    assert draft.job
    assert draft.choice.cluster
    if draft.choice.planned:
        planned_environments.create_environments(user, draft.choice.planned, draft.job.task_id)
    task = task_store.store_task(
        draft.job,
        user,
        draft.choice.cluster,
        **draft.build_columns(),
        **task_store.build_queue_columns(draft.parsed.task, draft.choice.select),
        warnings=[{"code": warning.code, "params": dict(warning.params)} for warning in draft.warnings],
        idempotency_key=key or None,
        request_hash=digest,
        trace=trace,
    )
    if tags := dict.fromkeys(draft.parsed.task.tags):  # rows of `apps.runs`, a layer above, found by their relation
        task.tags.bulk_create(task.tags.model(task=task, name=name) for name in tags)
    predecessors.store_predecessors(task.pk, draft.parsed.task.after)
    transitions.record_event(task.pk, 0, "state", "TASK_CREATED", {"owner": user.username})
    audit.record_event(user, "task.create", task.pk, project=task.project_id, name=task.name)
    return task
