"""Finds, stops, grows, retries, clones and deletes tasks."""

from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.db.models import Q

from apps.accounts import access, audit
from apps.accounts.models import Role, User
from apps.clusters.models import DevEnvironment, Lease
from apps.clusters.services import change_environment
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.training.core import checkpoint_choice, code, elastic_size, predecessors, redaction, transitions, wakeups
from apps.training.models import Task
from apps.training.services import code_source, delete
from apps.training.states import ACTIVE_STATES, FINAL_STATES, TaskAction, TaskState, allowed_actions
from fermi.jobs.spec import JobSpec


def find_task(user: User, task_id: str, role: Role = Role.VIEWER) -> Task:
    """Return the training task, with its cluster. Raises ApiError 404 if `user` may not see it, 403 without `role` in
    its project."""
    rows = Task.trainings.select_related("cluster")
    return access.get_object(rows, user, task_id, role)


def find_task_of_any_kind(user: User, task_id: str, role: Role = Role.VIEWER) -> Task:
    """Return the task of any kind, so also a pre-flight test or a drill by its own id."""
    return access.get_object(Task.objects.select_related("cluster"), user, task_id, role)


def stop_task(user: User, task_id: str) -> Task:
    """Request a stop and return the task. Asking again changes nothing, and a task that has ended stays as it ended."""
    return _stop(user, find_task(user, task_id, Role.MEMBER))


def grow_task(user: User, task_id: str) -> Task:
    """Have an elastic task save, end its attempt and resume on all nodes that are available now. Asking again changes
    nothing. Raises ApiError 409 if it is not elastic, does not run or could not grow."""
    task = find_task(user, task_id, Role.MEMBER)
    job = JobSpec.from_json(task.spec)
    if job.elastic is None:
        raise ApiError(409, "NOT_ELASTIC")
    if task.state != TaskState.RUNNING:
        raise ApiError(409, "GROW_NEEDS_RUNNING", status=task.state)
    larger = elastic_size.find_larger_job(task)
    if larger is None:
        raise ApiError(409, "NOTHING_TO_GROW", nodes=len(job.nodes), all=job.elastic.max_nodes)
    with transaction.atomic():
        fresh = Task.objects.filter(
            pk=task.pk, resize_requested_at=None, stop_requested_at=None, state=TaskState.RUNNING
        )
        if fresh.update(resize_requested_at=now()):
            params = {"by": user.username, "nodes": len(larger.nodes)}
            transitions.record_event(task.pk, task.attempt, "state", "GROW_REQUESTED", params)
            audit.record_event(user, "task.grow", task.pk, project=task.project_id)
            wakeups.enqueue_task(task.pk)
    task.refresh_from_db()
    return task


def stop_task_of_any_kind(user: User, task_id: str) -> Task:
    """Request a stop of a task of any kind, so also of a pre-flight test or a drill by its own id."""
    return _stop(user, find_task_of_any_kind(user, task_id, Role.MEMBER))


def _stop(user: User, task: Task) -> Task:
    with transaction.atomic():
        fresh = Task.objects.filter(pk=task.pk, stop_requested_at=None, state__in=ACTIVE_STATES)
        if fresh.update(stop_requested_at=now()):
            transitions.record_event(task.pk, task.attempt, "state", "STOP_REQUESTED", {"by": user.username})
            audit.record_event(user, "task.stop", task.pk, project=task.project_id)
            wakeups.enqueue_task(task.pk)
    task.refresh_from_db()
    return task


def build_retry_request(
    user: User, task_id: str, choice: code_source.RetryCode, snapshot: str | None = None
) -> dict[str, Any]:
    """Return the request that `retry` submits: that of a task which did not succeed, resuming from its newest
    checkpoint. `choice`: which code to run, unless `snapshot` names another one of the project. Raises ApiError 409 if
    the task cannot be retried."""
    task = find_task(user, task_id, Role.MEMBER)
    _refuse_unless(task, TaskAction.RETRY)
    newest = checkpoint_choice.find_newest_checkpoint(task)
    request = code.rebuild_request(task.request, task.spec, code_source.choose_snapshot(task, choice, snapshot))
    request = {**request, **({"resumeFrom": newest} if newest else {})}
    return predecessors.keep_possible(request)


def clone_request(user: User, task_id: str) -> dict[str, Any]:
    """Return the request of a task, to be edited and submitted."""
    task = find_task(user, task_id)
    request = code.rebuild_request(redaction.redact_request(task.request, task.project_id, user), task.spec)
    return {"request": predecessors.keep_possible(request)}


def delete_task(user: User, task_id: str) -> None:
    """Delete a task that has ended, with its logs and checkpoints. Raises ApiError 409 if it is active, or another task
    uses its checkpoints."""
    task = find_task(user, task_id, Role.MEMBER)
    _refuse_unless(task, TaskAction.DELETE)
    resumed = Q()
    for folder in delete.list_resumable_folders(task):
        resumed |= Q(spec__resume_from__startswith=f"{folder}/")
    if busy := Task.objects.filter(resumed, state__in=ACTIVE_STATES).values_list("pk", flat=True).first():
        raise ApiError(409, "CHECKPOINTS_IN_USE", task=busy)
    if awaited := predecessors.find_waiting_follower(task.pk):
        raise ApiError(409, "TASK_AWAITED", task=awaited)
    if going_on := next((run.pk for run in delete.list_runs(task) if run.state in ACTIVE_STATES), None):
        raise ApiError(409, "DRILL_UNDER_WAY", drill=going_on)
    delete.remove_task(
        task, lambda: audit.record_event(user, "task.delete", task.pk, project=task.project_id, name=task.name)
    )


def _refuse_unless(task: Task, action: TaskAction) -> None:
    state = TaskState(task.state)
    if action not in allowed_actions(state):
        code = "ACTION_NOT_ALLOWED" if state in FINAL_STATES else "TASK_NOT_FINAL"
        raise ApiError(409, code, action=action, status=state)


def drain_environments(user: User, environments: Iterable[DevEnvironment]) -> list[str]:
    """Cordon the environments, then stop the tasks that hold them; return the stopped tasks' ids. Checkpoints are saved
    as with any stop, and a retry resumes from them."""
    drained = list(environments)
    for environment in drained:
        change_environment(user, environment, {"cordoned": True})
    holders = Lease.objects.filter(environment__in=drained).values_list("holder", flat=True)
    return [stop_task_of_any_kind(user, task_id).pk for task_id in sorted(set(holders))]
