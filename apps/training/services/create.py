"""Creating a task: checked, stored whole in one transaction, and handed to the reconciler by a hint."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import IntegrityError, transaction

from apps.accounts import access, audit
from apps.accounts.models import Role, User
from apps.common.clock import now
from apps.common.errors import ApiError, ProblemsError, together
from apps.common.ids import new_id
from apps.training.ground import hints, placing, transitions
from apps.training.models import Task
from apps.training.services.build import Draft, build
from apps.training.states import State
from apps.training.states.limits import DEADLINES
from fermi.launch.spec import Problem


def create(
    user: User,
    body: Mapping[str, Any],
    request: Mapping[str, Any],
    key: str | None = None,
    wrong: Sequence[Problem] = (),
) -> Task:
    """`key`: the Idempotency-Key; with the same request it gives the task that it gave before, with another one it is a
    conflict. Raises ProblemsError with everything that is wrong, `wrong` (of what `body` lacks) first."""
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    if key and (before := _before(user, key, digest)):
        return before
    draft = build(user, body, request, new_id("task"))
    if problems := together(wrong, draft.problems):
        raise ProblemsError(problems)
    access.require(user, draft.environments[0].project_id, Role.MEMBER)
    try:
        with transaction.atomic():
            return _store(user, draft, key, digest)
    except IntegrityError:
        if key and (before := _before(user, key, digest)):  # the same request came twice at the same time
            return before
        raise


def _before(user: User, key: str, digest: str) -> Task | None:
    task = Task.objects.filter(owner=user, idempotency_key=key).first()
    if task and task.request_hash != digest:
        raise ApiError(409, "IDEMPOTENCY_CONFLICT", "Idempotency-Key", key=key, task=task.pk)
    return task


def _store(user: User, draft: Draft, key: str | None, digest: str) -> Task:
    job, moment = draft.job, now()
    assert job
    assert draft.cluster
    task = Task.objects.create(
        id=job.task_id,
        project_id=draft.environments[0].project_id,
        owner=user,
        cluster=draft.cluster,
        name=draft.name,
        framework=job.framework,
        dataset_version=draft.version,
        model=draft.model,
        priority=draft.priority,
        max_restarts=draft.max_restarts,
        request=draft.request,
        **placing.columns(job),
        warnings=[{"code": warning.code, "params": dict(warning.params)} for warning in draft.warnings],
        state=State.INITIALIZING,
        state_since=moment,
        due_at=moment,
        deadline_at=moment + DEADLINES[State.INITIALIZING],
        created_at=moment,
        idempotency_key=key or None,
        request_hash=digest,
    )
    placing.store_nodes(task, job)
    transitions.record(task.pk, 0, "state", "TASK_CREATED", {"owner": user.username})
    audit.record(user, "task.create", task.pk, project=task.project_id, name=task.name)
    hints.poke(task.pk)
    return task
