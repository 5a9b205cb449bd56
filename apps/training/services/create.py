"""Creating a task: checked, stored whole in one transaction, and handed to the reconciler by a hint."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction

from apps.accounts import access, audit
from apps.accounts.models import Role, User
from apps.common.clock import now
from apps.common.errors import ApiError, ProblemsError
from apps.common.ids import new_id
from apps.training import hints, transitions
from apps.training.limits import DEADLINES
from apps.training.models import Node, Task
from apps.training.services.build import Draft, build
from apps.training.states import State
from fermi.launch import summary
from fermi.launch.ranks import place


def create(user: User, body: Mapping[str, Any], request: Mapping[str, Any], key: str | None = None) -> Task:
    """`key`: the Idempotency-Key; with the same request it gives the task that it gave before, with another one it is a
    conflict. Raises ProblemsError with everything that is wrong."""
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    if key and (before := _before(user, key, digest)):
        return before
    draft = build(user, body, request, new_id("task"))
    if draft.problems:
        raise ProblemsError(draft.problems)
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
    totals = summary.summarise(job.nodes)
    task = Task.objects.create(
        id=job.task_id,
        project_id=draft.environments[0].project_id,
        owner=user,
        cluster=draft.cluster,
        name=draft.name,
        framework=job.framework,
        dataset_version=draft.version,
        model=draft.model,
        distributed=len(job.nodes) > 1,
        node_count=len(job.nodes),
        total_gpus=totals["totalGpus"],
        world_size=job.world_size,
        master=job.master,
        priority=draft.priority,
        max_restarts=draft.max_restarts,
        request=draft.request,
        spec=job.to_json(),
        summary={name: totals[name] for name in ("totalCpus", "totalMemoryGb", "gpuTypes", "zones", "crossZone")},
        warnings=[{"code": warning.code, "params": dict(warning.params)} for warning in draft.warnings],
        state=State.INITIALIZING,
        state_since=moment,
        due_at=moment,
        deadline_at=moment + DEADLINES[State.INITIALIZING],
        created_at=moment,
        idempotency_key=key or None,
        request_hash=digest,
    )
    Node.objects.bulk_create(
        Node(
            task=task,
            node_rank=at.node_rank,
            environment_id=at.node.id,
            name=at.node.name,
            zone=at.node.zone,
            gpu_type=at.node.gpu_type,
            processes=at.node.processes,
        )
        for at in place(job.nodes, job.master)
    )
    transitions.record(task.pk, 0, "state", "TASK_CREATED", {"owner": user.username})
    audit.record(user, "task.create", task.pk, project=task.project_id, name=task.name)
    hints.poke(task.pk)
    return task
