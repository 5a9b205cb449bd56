"""Creating a task: checked, stored whole in one transaction, and handed to the reconciler by a hint."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import IntegrityError, transaction

from apps.accounts import access, audit
from apps.accounts.models import Role, User
from apps.common.errors import ApiError, ProblemsError
from apps.common.ids import new_id
from apps.training.core import task_store, trace_context, transitions
from apps.training.models import Task
from apps.training.services import actions, planned_environments
from apps.training.services.build import Draft, build
from apps.training.services.code_source import DEFAULT, Choice
from fermi.jobs import json_shape
from fermi.jobs.spec import Problem
from fermi.planning.request import TaskRequest


def submit(user: User, request: Mapping[str, Any]) -> Task:
    """A task from a request that does not come from outside: a group's, or that of a task which is to run again."""
    asked, wrong = json_shape.read(TaskRequest, request)
    return create(user, asked, request, wrong=wrong)


def draft(user: User, request: Mapping[str, Any], task_id: str) -> Draft:
    """What `submit` would run, with everything that is wrong with it."""
    asked, wrong = json_shape.read(TaskRequest, request)
    return build(user, asked, request, task_id, wrong)


def retry(user: User, task_id: str, code: Choice = DEFAULT, snapshot: str | None = None) -> Task:
    """Resumes from the newest checkpoint, with the code of that choice or another `snapshot` of the project. Raises
    ApiError when the task is not one to retry."""
    return submit(user, actions.again(user, task_id, code, snapshot))


def create(
    user: User,
    asked: TaskRequest,
    request: Mapping[str, Any],
    key: str | None = None,
    wrong: Sequence[Problem] = (),
    came: Mapping[str, Any] | None = None,
) -> Task:
    """`key`: the Idempotency-Key; with the same request it gives the task that it gave before, with another one it is a
    conflict. Raises ProblemsError with everything that is wrong, `wrong` (of what `asked` lacks) first. `came`: what
    `tracing.arrived` says of the request."""
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    if key and (before := _before(user, key, digest)):
        return before
    draft = build(user, asked, request, new_id("task"), wrong, look=False)
    if draft.problems:
        raise ProblemsError(draft.problems)
    access.require(user, draft.choice.project, Role.MEMBER)
    try:
        with transaction.atomic():
            return _store(user, draft, key, digest, trace_context.checked(came or {}))
    except IntegrityError:
        if key and (before := _before(user, key, digest)):  # the same request came twice at the same time
            return before
        raise


def _before(user: User, key: str, digest: str) -> Task | None:
    task = Task.objects.filter(owner=user, idempotency_key=key).first()
    if task and task.request_hash != digest:
        raise ApiError(409, "IDEMPOTENCY_CONFLICT", "Idempotency-Key", key=key, made=task.pk)
    return task


def _store(user: User, draft: Draft, key: str | None, digest: str, trace: Mapping[str, Any]) -> Task:
    assert draft.job
    assert draft.cluster
    if draft.choice.planned:
        planned_environments.make(user, draft.choice.planned, draft.job.task_id)
    task = task_store.store(
        draft.job,
        user,
        draft.cluster,
        name=draft.name,
        dataset_version=draft.version,
        model=draft.model,
        **task_store.in_queue(draft.asked, draft.choice.select),
        request=draft.request,
        warnings=[{"code": warning.code, "params": dict(warning.params)} for warning in draft.warnings],
        idempotency_key=key or None,
        request_hash=digest,
        trace=trace,
    )
    transitions.record(task.pk, 0, "state", "TASK_CREATED", {"owner": user.username})
    audit.record(user, "task.create", task.pk, project=task.project_id, name=task.name)
    return task
