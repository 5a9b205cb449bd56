"""Takes a task through the queue: it enters, gets its environments, and gives them back."""

from datetime import timedelta

from django.db import transaction
from django.db.models import Q

from apps.clusters import leases
from apps.common.clock import now
from apps.training.core import release, task_store, transitions, wakeups
from apps.training.core.engine_access import get_backend, resolve_run_locations
from apps.training.models import Drill, Preflight, Task
from apps.training.queue import limits, scheduling_pass
from apps.training.states import ACTIVE_STATES, TaskState
from apps.training.states.deadlines import PAUSED_RECONCILE_INTERVAL, QUEUED_RECONCILE_INTERVAL, RECONCILE_INTERVALS
from apps.training.states.reasons import TaskReason
from fermi.jobs.spec import JobSpec


def has_turn(task: Task, job: JobSpec) -> bool:
    """Return True if the task holds all environments of its job, or its engine schedules it."""
    wanted = {node.id for node in job.nodes}
    if not is_scheduled_by_platform(task) or wanted <= leases.list_held_environments(task.pk):
        return True
    return _has_active_stage(task) or _take_over_leases(task, wanted)


def is_scheduled_by_platform(task: Task) -> bool:
    """Return True if the platform's queue schedules the task, and not its engine's."""
    return task.inside or not get_backend(task.cluster).queues


def update_run_location(task: Task, job: JobSpec) -> None:
    """Update whether ranks run inside environments, and so which queue schedules the task: nodes may have changed
    since."""
    if not get_backend(task.cluster).queues:
        return
    inside = task_store.has_inside_ranks(resolve_run_locations(task.cluster, job)[0])
    if inside != task.inside:
        with transitions.lock_task(task):
            Task.objects.filter(pk=task.pk).update(inside=inside)
        task.inside = inside


def acquire_environments(task: Task, job: JobSpec) -> list[tuple[str, str]] | None:
    """Acquire the environments in the transaction that starts an attempt; return None, or which of them others hold.
    Raises OverLimitError for tasks that the engine's queue schedules; the platform's queue checks limits itself."""
    keys = [node.id for node in job.nodes]
    if is_scheduled_by_platform(task):
        return leases.acquire_leases(keys, task.pk)
    if not leases.list_held_environments(task.pk):
        limits.check_limits(task, keys)
    leases.record_holder(keys, task.pk)
    return None


def enter_queue(task: Task, job: JobSpec) -> timedelta | None:
    """Put the task in the queue, where it holds nothing, and request a scheduling pass. Return None if it got its turn,
    else how long it needs no pass of its own: the scheduling pass updates and starts it."""
    with transitions.lock_task(task):
        if Task.objects.filter(pk=task.pk, in_line_at=None).update(in_line_at=now()):
            release.release_environments(task)
            wakeups.request_scheduling()
    scheduling_pass.run_if_due(task.pk)
    waits = Task.objects.filter(pk=task.pk, state=TaskState.QUEUED, in_line_at__isnull=False).exists()
    if not waits:
        return None
    return RECONCILE_INTERVALS[TaskState.QUEUED] if job.elastic else QUEUED_RECONCILE_INTERVAL


def _take_over_leases(run: Task, environments: set[str]) -> bool:
    """Transfer the environments of a task to the stage (test or drill) that runs before its first attempt."""
    task = _find_staged_task(run)
    if task is None or not environments <= leases.list_held_environments(task):
        return False
    with transaction.atomic():
        return release.transfer_leases(Task.objects.select_related("cluster", "owner").get(pk=task), run) > 0


def return_environments(run: Task) -> bool:
    """Return the environments to the task before whose first attempt this stage ran, in the transaction that ends the
    stage; False if there is no such task."""
    task = _find_staged_task(run)
    waits = Task.objects.filter(
        pk=task, state=TaskState.QUEUED, stop_requested_at=None, paused_at=None, preempted_at=None
    )
    found = None if task is None else waits.first()
    if found is None:
        return False
    release.transfer_leases(run, found)
    wakeups.enqueue_task(found.pk)
    return True


def leave_queue(task: Task) -> None:
    """Take the task out of the queue and release what it holds. Between attempts it keeps what it has."""
    if task.attempt and task.in_line_at is None:
        return
    with transitions.lock_task(task):
        Task.objects.filter(pk=task.pk).update(in_line_at=None, turn={})
        release.release_environments(task)
    task.in_line_at = None


def _has_active_stage(task: Task) -> bool:
    """Return True if a stage before the task's first attempt is active, and so has its environments."""
    mine = Q(preflight__before=task) | Q(drill__task=task, drill__stage=True)
    return not task.attempt and Task.objects.filter(mine, state__in=ACTIVE_STATES).exists()


def _find_staged_task(run: Task) -> str | None:
    before = Preflight.objects.filter(run=run).values_list("before", flat=True).first()
    return before or Drill.objects.filter(run=run, stage=True).values_list("task", flat=True).first()


def suspend_task(task: Task) -> timedelta | None:
    """Release what a paused or preempted task holds, once no attempt of it is alive. Return how long a paused task
    waits until its next pass; None for a preempted one, which queues again."""
    with transitions.lock_task(task):
        release.release_environments(task)
        if task.paused_at:
            Task.objects.filter(pk=task.pk).update(in_line_at=None, turn={}, deadline_at=None)
            transitions.explain_wait(task, TaskReason.PAUSED, task.preempted_for)
            return PAUSED_RECONCILE_INTERVAL
        Task.objects.filter(pk=task.pk).update(preempted_at=None, preempted_for={}, borrowed=False)
    return None
