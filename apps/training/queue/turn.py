"""Takes a task through the queue: it enters, gets its environments, and gives them back."""

from datetime import timedelta

from django.db import transaction
from django.db.models import Q

from apps.clusters import leases
from apps.common.clock import now
from apps.training.core import releasing, task_store, transitions, wakeups
from apps.training.core.engine_access import backend_for, settled
from apps.training.models import Drill, Preflight, Task
from apps.training.queue import limits, scheduling_pass
from apps.training.states import ACTIVE, State
from apps.training.states.limits import IN_LINE, LOOK_AGAIN, RESTING
from apps.training.states.reasons import Reason
from fermi.jobs.spec import JobSpec


def has_turn(task: Task, job: JobSpec) -> bool:
    """Return True if the task holds all environments of its job, or its engine schedules it."""
    wanted = {node.id for node in job.nodes}
    if not decides(task) or wanted <= leases.held(task.pk):
        return True
    return _stage_goes_on(task) or _take_over(task, wanted)


def decides(task: Task) -> bool:
    """Return True if the platform's queue schedules the task, and not its engine's."""
    return task.inside or not backend_for(task.cluster).queues


def learn_way(task: Task, job: JobSpec) -> None:
    """Update whether ranks run inside environments, and so which queue schedules the task: nodes may have changed
    since."""
    if not backend_for(task.cluster).queues:
        return
    inside = task_store.runs_inside(settled(task.cluster, job)[0])
    if inside != task.inside:
        with transitions.owned(task):
            Task.objects.filter(pk=task.pk).update(inside=inside)
        task.inside = inside


def take(task: Task, job: JobSpec) -> list[tuple[str, str]] | None:
    """Acquire the environments in the transaction that starts an attempt; return None, or which of them others hold.
    Raises OverLimitError for tasks that the engine's queue schedules; the platform's queue checks limits itself."""
    keys = [node.id for node in job.nodes]
    if decides(task):
        return leases.take(keys, task.pk)
    if not leases.held(task.pk):
        limits.check(task, keys)
    leases.mark(keys, task.pk)
    return None


def stand(task: Task, job: JobSpec) -> timedelta | None:
    """Put the task in the queue, where it holds nothing, and request a scheduling pass. Return None if it got its turn,
    else how long it needs no pass of its own: the scheduling pass updates and starts it."""
    with transitions.owned(task):
        if Task.objects.filter(pk=task.pk, in_line_at=None).update(in_line_at=now()):
            releasing.give_back(task)
            wakeups.queue_is_due()
    scheduling_pass.decide_if_due(task.pk)
    waits = Task.objects.filter(pk=task.pk, state=State.QUEUED, in_line_at__isnull=False).exists()
    if not waits:
        return None
    return LOOK_AGAIN[State.QUEUED] if job.elastic else IN_LINE


def _take_over(run: Task, wanted: set[str]) -> bool:
    """Transfer the environments of a task to the stage (test or drill) that runs before its first attempt."""
    task = _staged(run)
    if task is None or not wanted <= leases.held(task):
        return False
    with transaction.atomic():
        return releasing.hand_over(Task.objects.select_related("cluster", "owner").get(pk=task), run) > 0


def give_on(run: Task) -> bool:
    """Return the environments to the task before whose first attempt this stage ran, in the transaction that ends the
    stage; False if there is no such task."""
    task = _staged(run)
    waits = Task.objects.filter(pk=task, state=State.QUEUED, stop_requested_at=None, paused_at=None, preempted_at=None)
    found = None if task is None else waits.first()
    if found is None:
        return False
    releasing.hand_over(run, found)
    wakeups.poke(found.pk)
    return True


def step_aside(task: Task) -> None:
    """Take the task out of the queue and release what it holds. Between attempts it keeps what it has."""
    if task.attempt and task.in_line_at is None:
        return
    with transitions.owned(task):
        Task.objects.filter(pk=task.pk).update(in_line_at=None, turn={})
        releasing.give_back(task)
    task.in_line_at = None


def _stage_goes_on(task: Task) -> bool:
    """Return True if a stage before the task's first attempt is active, and so has its environments."""
    mine = Q(preflight__before=task) | Q(drill__task=task, drill__stage=True)
    return not task.attempt and Task.objects.filter(mine, state__in=ACTIVE).exists()


def _staged(run: Task) -> str | None:
    before = Preflight.objects.filter(run=run).values_list("before", flat=True).first()
    return before or Drill.objects.filter(run=run, stage=True).values_list("task", flat=True).first()


def rest(task: Task) -> timedelta | None:
    """Release what a paused or preempted task holds, once no attempt of it is alive. Return how long a paused task
    waits until its next pass; None for a preempted one, which queues again."""
    with transitions.owned(task):
        releasing.give_back(task)
        if task.paused_at:
            Task.objects.filter(pk=task.pk).update(in_line_at=None, turn={}, deadline_at=None)
            transitions.explain(task, Reason.PAUSED, task.preempted_for)
            return RESTING
        Task.objects.filter(pk=task.pk).update(preempted_at=None, preempted_for={}, borrowed=False)
    return None
