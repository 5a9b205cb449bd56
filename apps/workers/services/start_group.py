"""Runs a group's script as a training task, on the environments that its workers form."""

from typing import Any

from django.db import transaction
from django.db.models import F

from apps.accounts import access, audit
from apps.accounts.models import Role, User
from apps.common.errors import ApiError, ProblemsError, cut
from apps.training.presenters.task_presenter import problem
from apps.training.services import actions
from apps.training.services.create import draft, submit
from apps.training.services.preview import TASK, named, rendered
from apps.workers.models import Group, Worker
from apps.workers.ranking import problems
from apps.workers.services.groups import active, find, line
from fermi.jobs import credentials
from fermi.jobs.ranks import split
from fermi.jobs.spec import SHOWN, decode
from fermi.planning import plugins


def start(user: User, group_id: str) -> Group:
    """Start the group's task (member). Raises ApiError 409 while one runs."""
    group = find(user, group_id, Role.MEMBER)
    if task := active(group):
        raise ApiError(409, "GROUP_RUNNING", group=group.name, task=task.pk)
    _begin(user, group)
    return group


def stop(user: User, group_id: str) -> Group:
    """Stop the group's task (member). Repeating it changes nothing."""
    group = find(user, group_id, Role.MEMBER)
    if task := active(group):
        actions.stop(user, task.pk)
    return group


def restart(user: User, group_id: str) -> Group:
    """Submit a new task, which waits until the present one has stopped and released its workers (member)."""
    group = find(user, group_id, Role.MEMBER)
    before = active(group)
    with transaction.atomic():
        _begin(user, group)
        if before:
            actions.stop(user, before.pk)
    return group


def request(group: Group) -> dict[str, Any]:
    """Return the request of the task. Raises ProblemsError with what keeps the group from being started."""
    workers = list(Worker.objects.filter(group=group).order_by("node", "number"))
    row = line(group, [worker.pk for worker in workers])
    if found := problems(row):
        raise ProblemsError(found)
    environments = {worker.node: worker.environment_id for worker in workers}
    used = {split(seat.worker)[0] for seat in row.seats() if seat.rank is not None}
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
            "framework": plugins.DEFAULT,
            "masterPort": group.master_port,
            "backend": group.backend,
            "worldSize": row.effective_world_size,
        },
        "entrypoint": {"script": group.script, "args": group.args},
        "env": group.env,
        "secretEnv": group.secret_env,
        "maxRestarts": group.max_restarts,
    }


def environment(user: User, worker_id: str) -> dict[str, Any]:
    """Return the variables that the worker's process would get if its group were started now, and the group's
    problems."""
    worker = access.get(Worker.objects.select_related("group"), user, worker_id)
    if worker.group is None:
        raise ApiError(409, "WORKER_WITHOUT_GROUP", worker=worker_id)
    try:
        made = draft(user, request(worker.group), TASK)
    except ProblemsError as error:
        return {"env": {}, "problems": [problem(one) for one in cut(error.problems)]}
    found = rendered(made)
    env: dict[str, str] = {}
    secrets = named(made.job)
    for artifact in found[1].artifacts if found else ():
        for rank in artifact.content["ranks"] if artifact.kind == "node" else ():
            if rank["worker"] == worker_id:
                shared = {**artifact.content["env"], **secrets}
                env = {name: decode(value, SHOWN) for name, value in {**shared, **rank["env"]}.items()}
    if not access.is_member(user, worker.project_id):
        env = credentials.without(env, worker.group.env)
    return {"env": env, "problems": [problem(one) for one in cut(made.problems)]}


def _begin(user: User, group: Group) -> None:
    with transaction.atomic():
        if not Group.objects.filter(pk=group.pk, starts=group.starts).update(starts=F("starts") + 1):
            raise ApiError(409, "GROUP_CHANGED", group=group.name)
        task = submit(user, request(group))
        Group.objects.filter(pk=group.pk).update(task=task)
        audit.record(user, "group.start", group.pk, project=group.project_id, task=task.pk)
    group.task = task
