"""Changes of groups and their members."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import IntegrityError, transaction

from apps.accounts import access, audit, secrets
from apps.accounts.access import choose_project
from apps.accounts.models import Role, User
from apps.common.errors import ApiError, ProblemsError, merge_problems
from apps.common.row_bounds import check_row_limit
from apps.training.public import FINAL_STATES, Task, TaskState
from apps.workers import revisions
from apps.workers.models import Group, Worker
from apps.workers.ranking import GroupLayout, check_settings
from apps.workers.services import environments
from fermi.jobs import credentials
from fermi.jobs.spec import Problem


def get_group(user: User, group_id: str, role: Role = Role.VIEWER) -> Group:
    return access.get_object(Group.objects.select_related("task"), user, group_id, role)


def create_group(
    user: User, *, name: str, project_id: str | None = None, worker_ids: Sequence[str] = (), **settings: Any
) -> Group:
    """Create a group (member). `worker_ids`: its first members, none of which may be in another group. Raises
    ApiError."""
    project = choose_project(user, project_id)
    with transaction.atomic():
        workers = _lock_workers(user, worker_ids, project)
        if taken := [
            Problem(f"workerIds.{index}", "WORKER_IN_OTHER_GROUP", {"worker": worker.pk, "group": worker.group.name})
            for index, worker in enumerate(workers)
            if worker.group is not None
        ]:
            raise ProblemsError(taken)
        check_row_limit("worker-groups", Group.objects.filter(project=project))
        group = Group(project_id=project, name=name, **settings)
        _check_group(group, worker_ids, secrets.find_unknown_secrets(project, group.secret_env))
        _save_group(group, force_insert=True)
        if workers:
            _set_group(group, workers)
        audit.record_event(user, "group.create", group.pk, project=project, name=name, workers=list(worker_ids))
    return group


def change_group(
    user: User, group_id: str, changes: Mapping[str, Any], shape_problems: Sequence[Problem] = ()
) -> Group:
    """Change a group's settings (member). A running task keeps what it was started with. `shape_problems`: problems of
    fields that `changes` lacks. Raises ApiError."""
    group = get_group(user, group_id, Role.MEMBER)
    with transaction.atomic():
        revisions.take_next_revision()
        for field, value in changes.items():
            setattr(group, field, value)
        unknown = secrets.find_unknown_secrets(group.project_id, changes.get("secret_env", {}))
        _check_group(group, group.workers.values_list("pk", flat=True), [*shape_problems, *unknown])
        _save_group(group, update_fields=list(changes))
        if "name" in changes:
            environments.sync_environments(group.project_id, _list_nodes(group.workers.all()))
        noted = {**changes, **({"env": credentials.mask_secrets(changes["env"])} if "env" in changes else {})}
        audit.record_event(user, "group.change", group.pk, project=group.project_id, **noted)
    return group


def delete_group(user: User, group_id: str) -> None:
    """Delete a group (member). Its workers are then in none; its tasks stay. Raises ApiError 409 while its task
    runs."""
    group = get_group(user, group_id, Role.MEMBER)
    if get_active_task(group):
        raise ApiError(409, "GROUP_RUNNING", group=group.name, task=group.task_id)
    with transaction.atomic():
        revisions.take_next_revision()
        workers = list(group.workers.all())
        _refuse_in_use(workers, "workers")
        audit.record_event(user, "group.delete", group.pk, project=group.project_id, name=group.name)
        group.delete()
        environments.sync_environments(group.project_id, _list_nodes(workers))


def move_workers(user: User, worker_ids: Sequence[str], group_id: str | None) -> None:
    """Move workers to a group, or out of any (None); all of them or none (member). Raises ApiError."""
    group = get_group(user, group_id, Role.MEMBER) if group_id is not None else None
    with transaction.atomic():
        revisions.take_next_revision()
        workers = _lock_workers(user, worker_ids, group.project_id if group else None)
        staying = group.pk if group else None
        moving = [worker for worker in workers if worker.group_id != staying]
        _refuse_in_use(moving, "workerIds")
        if group and moving and get_active_task(group):
            raise ApiError(409, "GROUP_RUNNING", "groupId", group=group.name, task=group.task_id)
        _set_group(group, moving)
        for project in {worker.project_id for worker in moving}:
            audit.record_event(
                user, "worker.move", staying or "", project=project,
                workers=[worker.pk for worker in moving if worker.project_id == project],
            )  # fmt: skip


def get_active_task(group: Group) -> Task | None:
    """Return the group's task if it has not ended."""
    return group.task if group.task and TaskState(group.task.state) not in FINAL_STATES else None


def build_layout(group: Group, workers: Sequence[str]) -> GroupLayout:
    return GroupLayout(
        group.master_address, group.world_size, group.master_port, group.script, group.env, group.secret_env,
        tuple(workers),
    )  # fmt: skip


def _lock_workers(user: User, ids: Sequence[str], project: str | None) -> list[Worker]:
    """Return the workers in the order named, locked. Raises ProblemsError with all problems of the ids."""
    known = (
        access.filter_visible(Worker.objects.select_related("group"), user)
        .select_for_update(of=("self",))
        .in_bulk(list(set(ids)))
    )
    problems, found = [], []
    for index, key in enumerate(ids):
        worker = known.get(key)
        if key in ids[:index]:
            problems.append(Problem(f"workerIds.{index}", "WORKER_DUPLICATE", {"worker": key}))
        elif worker is None:
            problems.append(Problem(f"workerIds.{index}", "WORKER_UNKNOWN", {"workers": key}))
        elif project is not None and worker.project_id != project:
            problems.append(Problem(f"workerIds.{index}", "WORKER_OF_OTHER_PROJECT", {"worker": key}))
        else:
            found.append(worker)
    if problems:
        raise ProblemsError(problems)
    for of_project in {worker.project_id for worker in found}:
        access.require_role(user, of_project, Role.MEMBER)
    return found


def _set_group(group: Group | None, workers: Sequence[Worker]) -> None:
    Worker.objects.filter(pk__in=[worker.pk for worker in workers]).update(group=group)
    for project in {worker.project_id for worker in workers}:
        environments.sync_environments(
            project, _list_nodes(worker for worker in workers if worker.project_id == project)
        )


def _refuse_in_use(workers: Sequence[Worker], field: str) -> None:
    if busy := environments.find_in_use(workers, field):
        error = ProblemsError(busy)
        error.status, error.code = 409, busy[0].code
        raise error


def _check_group(group: Group, workers: Any, shape_problems: Sequence[Problem] = ()) -> None:
    if problems := merge_problems(shape_problems, check_settings(build_layout(group, list(workers)))):
        raise ProblemsError(problems)


def _save_group(group: Group, **how: Any) -> None:
    try:
        with transaction.atomic():
            group.save(**how)
    except IntegrityError:
        raise ApiError(409, "GROUP_NAME_TAKEN", "name", name=group.name) from None


def _list_nodes(workers: Any) -> set[str]:
    return {worker.node for worker in workers}
