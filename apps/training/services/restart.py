"""Resumes a task from its newest checkpoint on a user's request: as before, without a node, or with a spare in its
place.

    a running task   its attempt saves and ends, and the next one starts; counts as no restart
    an ended task    a new task with the same request, as a retry creates it, except for these nodes
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.db import transaction

from apps.accounts import audit
from apps.accounts.models import Role, User
from apps.clusters import leases
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.training.core import elastic_size, placement, transitions, wakeups
from apps.training.models import Task
from apps.training.services import actions
from apps.training.services.code_source import DEFAULT_RETRY_CODE, RetryCode
from apps.training.services.create import submit_request
from apps.training.states import FINAL_STATES, TaskState
from fermi.jobs.spec import JobSpec


def restart_task(
    user: User,
    task_id: str,
    leave_out: Sequence[str] = (),
    *,
    use_spares: bool = False,
    code: RetryCode = DEFAULT_RETRY_CODE,
) -> Task:
    """Return the task that continues: this one, or the new one.

    `leave_out`: environments to do without; with `use_spares` free spares take their places. `code`: which code to run,
    for a task that has ended; a running one keeps its snapshot. Asking a running task again changes nothing. Raises
    ApiError 409 if it can neither restart nor retry now, or no spare is free.
    """
    task = actions.find_task(user, task_id, Role.MEMBER)
    if TaskState(task.state) in FINAL_STATES:
        return submit_request(user, _build_request(user, task, leave_out, use_spares, code))
    if task.state != TaskState.RUNNING:
        raise ApiError(409, "RESTART_NEEDS_RUNNING", status=task.state)
    job, after, taken = _plan_next_attempt(task, leave_out, use_spares)
    with transaction.atomic():
        fresh = Task.objects.filter(
            pk=task.pk, attempt=task.attempt, resize_requested_at=None, stop_requested_at=None, state=TaskState.RUNNING
        )
        if fresh.update(resize_requested_at=now(), spec=after.to_json()):
            if leases.acquire_leases(taken, task.pk):
                raise ApiError(409, "NO_SPARE_FREE")
            names = ", ".join(node.name for node in job.nodes if node.id in leave_out)
            params = {"by": user.username, **({"without": names} if names else {})}
            transitions.record_event(task.pk, task.attempt, "state", "RESTART_REQUESTED", params)
            audit.record_event(user, "task.restart", task.pk, project=task.project_id, without=list(leave_out))
            wakeups.enqueue_task(task.pk)
    task.refresh_from_db()
    return task


def _plan_next_attempt(task: Task, leave_out: Sequence[str], use_spares: bool) -> tuple[JobSpec, JobSpec, list[str]]:
    """Return the job as it is, as its next attempt is to be, and the spares to hold for it."""
    job = JobSpec.from_json(task.spec)
    if not leave_out:
        return job, job, []
    _refuse_foreign(leave_out, [node.id for node in job.nodes])
    after = replace(job, left_out=tuple(dict.fromkeys([*job.left_out, *leave_out])))
    if use_spares:
        if (taken := placement.find_spares(task, after, leave_out)) is None:
            raise ApiError(409, "NO_SPARE_FREE")
        return job, after, [node.id for node in taken.values()]
    if job.elastic is None:
        raise ApiError(409, "LEAVING_NEEDS_ELASTIC")
    if elastic_size.find_reduced_job(task, after) is None:
        raise ApiError(409, "TOO_FEW_LEFT", low=job.elastic.min_nodes)
    return job, after, []


def _build_request(
    user: User, task: Task, leave_out: Sequence[str], use_spares: bool, code: RetryCode
) -> dict[str, Any]:
    """Return the request of an ended task with other nodes. Code that was taken from the master stays as it was taken
    if another environment becomes the master."""
    source = (task.spec.get("code") or {}).get("source") or {}
    without_source = source.get("environment") in leave_out
    if without_source and code == "current":
        raise ApiError(409, "CODE_SOURCE_LEFT_OUT", "code", environment=source["name"])
    request = actions.build_retry_request(user, task.pk, "snapshot" if without_source else code)
    if without_source and request["code"].get("snapshot"):
        request["code"] = {name: request["code"][name] for name in ("snapshot", "requirements")}
    config = request.get("distributedConfig") or {}
    chosen = list(config.get("nodeIds") or request.get("environmentIds") or ())
    spares = [key for key in request.get("spareEnvironmentIds") or () if key not in chosen]
    _refuse_foreign(leave_out, chosen)
    if not leave_out:
        return request
    instead: dict[str, str] = {}
    if use_spares:
        taken = placement.find_spares(task, JobSpec.from_json(task.spec), leave_out)
        if taken is None or set(taken) != set(leave_out):
            raise ApiError(409, "NO_SPARE_FREE")
        instead = {key: node.id for key, node in taken.items()}
    nodes = [instead.get(key, key) for key in chosen if key in instead or key not in leave_out]
    if not nodes:
        raise ApiError(409, "TOO_FEW_LEFT", low=1)
    master = str(config.get("masterNode") or nodes[0])
    master = instead.get(master, nodes[0]) if master in leave_out else master
    changed = {**request, "environmentIds": nodes, "spareEnvironmentIds": [key for key in spares if key not in nodes]}
    if config:
        fewer = {"worldSize": None} if config.get("worldSize") and not use_spares else {}
        changed["distributedConfig"] = {**config, **fewer, "nodeIds": nodes, "masterNode": master}
    return changed


def _refuse_foreign(leave_out: Sequence[str], chosen: Sequence[str]) -> None:
    if foreign := [key for key in leave_out if key not in chosen]:
        raise ApiError(400, "NODE_NOT_OF_TASK", "leaveOut", environment=foreign[0])


def can_restart(user: User, task: Task, leave_out: Sequence[str], *, use_spares: bool = False) -> bool:
    """Return True if `restart_task` could be done now, as far as that is known without validating the request again."""
    try:
        if TaskState(task.state) in FINAL_STATES:
            _build_request(
                user, task, leave_out, use_spares, "snapshot"
            )  # the only choice that does not read the source
        else:
            _plan_next_attempt(task, leave_out, use_spares)
    except ApiError:
        return False
    return TaskState(task.state) in {*FINAL_STATES, TaskState.RUNNING}
