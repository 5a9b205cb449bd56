"""Runs a group's script as a training task, on the environments that its workers form."""

from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.db.models import F

from apps.accounts import access, audit
from apps.accounts.models import Role, User
from apps.common.errors import ApiError, ProblemsError, limit_problems
from apps.training.public import PREVIEW_TASK_ID, draft_request, mask_secrets, render_draft, stop_task, submit_request
from apps.workers.models import Group, Worker
from apps.workers.ranking import check_group
from apps.workers.services.groups import build_layout, get_active_task, get_group
from fermi.jobs import credentials
from fermi.jobs.ranks import parse_worker_name
from fermi.jobs.spec import LATE_TEXTS, Problem, decode_value
from fermi.planning import plugins


def start_group(user: User, group_id: str) -> Group:
    """Start the group's task (member). Raises ApiError 409 while one runs."""
    group = get_group(user, group_id, Role.MEMBER)
    if task := get_active_task(group):
        raise ApiError(409, "GROUP_RUNNING", group=group.name, task=task.pk)
    _submit_task(user, group)
    return group


def stop_group(user: User, group_id: str) -> Group:
    """Stop the group's task (member). Repeating it changes nothing."""
    group = get_group(user, group_id, Role.MEMBER)
    if task := get_active_task(group):
        stop_task(user, task.pk)
    return group


def restart_group(user: User, group_id: str) -> Group:
    """Submit a new task, which waits until the present one has stopped and released its workers (member)."""
    group = get_group(user, group_id, Role.MEMBER)
    before = get_active_task(group)
    with transaction.atomic():
        _submit_task(user, group)
        if before:
            stop_task(user, before.pk)
    return group


def build_task_request(group: Group) -> dict[str, Any]:
    """Return the request of the task. Raises ProblemsError with what keeps the group from being started."""
    workers = list(Worker.objects.filter(group=group).order_by("node", "number"))
    row = build_layout(group, [worker.pk for worker in workers])
    if found := check_group(row):
        raise ProblemsError(found)
    environments = {worker.node: worker.environment_id for worker in workers}
    used = {parse_worker_name(seat.worker)[0] for seat in row.seats() if seat.rank is not None}
    return {
        "taskName": group.name,
        "datasetId": None,
        "datasetVersionId": None,
        "modelId": None,
        "spareEnvironmentIds": [environments[node] for node in row.nodes if node not in used],
        "distributedConfig": {
            "enabled": True,
            "nodeIds": [environments[node] for node in row.nodes if node in used],
            "masterNode": environments[row.master],
            "framework": plugins.DEFAULT_FRAMEWORK,
            "masterPort": group.master_port,
            "backend": group.backend,
            "worldSize": row.effective_world_size,
        },
        "entrypoint": {"script": group.script, "args": group.args},
        "env": group.env,
        "secretEnv": group.secret_env,
        "maxRestarts": group.max_restarts,
    }


def preview_variables(user: User, worker_id: str) -> tuple[dict[str, str], Sequence[Problem]]:
    """Return the variables that the worker's process would get if its group were started now, and the group's
    problems."""
    worker = access.get_object(Worker.objects.select_related("group"), user, worker_id)
    if worker.group is None:
        raise ApiError(409, "WORKER_WITHOUT_GROUP", worker=worker_id)
    try:
        made = draft_request(user, build_task_request(worker.group), PREVIEW_TASK_ID)
    except ProblemsError as error:
        return {}, limit_problems(error.problems)
    found = render_draft(made)
    env: dict[str, str] = {}
    secrets = mask_secrets(made.job)
    for artifact in found[1].artifacts if found else ():
        for rank in artifact.content["ranks"] if artifact.kind == "node" else ():
            if rank["worker"] == worker_id:
                shared = {**artifact.content["env"], **secrets}
                env = {name: decode_value(value, LATE_TEXTS) for name, value in {**shared, **rank["env"]}.items()}
    if not access.is_member(user, worker.project_id):
        env = credentials.redact_secrets(env, worker.group.env)
    return env, limit_problems(made.problems)


def _submit_task(user: User, group: Group) -> None:
    with transaction.atomic():
        if not Group.objects.filter(pk=group.pk, starts=group.starts).update(starts=F("starts") + 1):
            raise ApiError(409, "GROUP_CHANGED", group=group.name)
        task = submit_request(user, build_task_request(group))
        Group.objects.filter(pk=group.pk).update(task=task)
        audit.record_event(user, "group.start", group.pk, project=group.project_id, task=task.pk)
    group.task = task
