"""Runs a scheduling pass: one decision for all waiting tasks, carried out task by task.

    claim the queue's row ─▶ load the snapshot ─▶ decide (pure) ─┬─▶ each that starts: store its nodes, take its leases
                                                                 ├─▶ each victim: ask it to give way
                                                                 └─▶ each other: why it waits, if that is new

Level-triggered like a pass over a task: a decision needs nothing but the database, hints only make it sooner, and a
pass that dies is repeated by the next one. What was carried out stands: each task starts in a transaction of its own
that commits only while the claim is held. Leases settle races with tasks that take environments outside of the queue.
"""

import logging
import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from django.db import transaction
from django.db.models import Q

from apps.clusters import leases
from apps.common.clock import now
from apps.training.core import placement, wakeups
from apps.training.models import Queue, Task
from apps.training.queue import load, node_selection, preemption_requests
from apps.training.states.deadlines import SCHEDULING_CLAIM_TIMEOUT, SCHEDULING_INTERVAL
from apps.training.states.reasons import TaskReason
from fermi.jobs.spec import JobSpec, Problem
from fermi.scheduler import scheduler
from fermi.scheduler.snapshot import Preemption, QueueEntry, RunningTask, SchedulerSnapshot

log = logging.getLogger(__name__)

MAX_ROUNDS = 4
"""Most passes in a row while something keeps changing; after that the sweep runs the next one."""
MAX_UPDATED_REASONS = 200
"""The reasons of the first so many tasks in the queue are kept up to date; of the others only when the code changes."""


class SchedulingLockLostError(Exception):
    """Raised if another process has taken the queue's claim over."""


def run_if_due(current_task_id: str = "") -> None:
    """Run scheduling passes as long as something changes, unless another process runs one: it checks again before it
    ends. `current_task_id`: the task whose pass calls this; it needs no hint."""
    for _ in range(MAX_ROUNDS):
        if not Queue.objects.filter(due_at__lte=now()).exists():
            return
        claim = _claim_queue()
        if claim is None:
            return
        try:
            again = _run_pass(claim, current_task_id)
        except SchedulingLockLostError:
            log.warning("the queue's claim was taken over: the decision took longer than %s", SCHEDULING_CLAIM_TIMEOUT)
            return
        except Exception:
            _release_queue(claim, now() + SCHEDULING_CLAIM_TIMEOUT)
            raise
        _release_queue(claim, again)


def _claim_queue() -> datetime | None:
    """Claim the queue and return the claim; None if another process has it. A change from here on makes the queue due
    again."""
    moment = now()
    claim = moment + timedelta(microseconds=random.randrange(1_000_000))
    free = Q(claimed_at=None) | Q(claimed_at__lt=moment - SCHEDULING_CLAIM_TIMEOUT)
    mine = Queue.objects.filter(free, pk=1, due_at__lte=moment).update(claimed_at=claim, due_at=None)
    return claim if mine else None


def _release_queue(claim: datetime, again: datetime | None) -> None:
    mine = Queue.objects.filter(pk=1, claimed_at=claim)
    with transaction.atomic():
        if again is not None:
            mine.filter(Q(due_at=None) | Q(due_at__gt=again)).update(due_at=again)
        mine.update(claimed_at=None, decided_at=now())


def _run_pass(claim: datetime, current_task_id: str) -> datetime | None:
    moment = now()
    if not load.filter_in_queue().exists():
        return None
    scene = load.load_snapshot(moment)
    decision = scheduler.make_decision(scene, node_selection.PlacementCheck())
    names = {place.id: place.name for place in scene.places}
    told = _ReasonWriter(scene, names)
    started = 0
    for turn in decision.turns:
        if turn.start:
            started += _start_task(turn, claim, current_task_id)
        else:
            told.write_reason(turn)
    for victim in decision.preempt:
        _request_preemption(victim, scene)
    if not load.filter_in_queue().exists():
        return None
    soon = moment + SCHEDULING_INTERVAL
    by_time = datetime.fromtimestamp(decision.again, moment.tzinfo) if decision.again is not None else soon
    return min(max(by_time, moment), soon)


def _start_task(turn: QueueEntry, claim: datetime, current_task_id: str) -> bool:
    """Give the task its environments; return False if it could not get them. Its own pass starts the attempt. Raises
    SchedulingLockLostError."""
    with transaction.atomic():
        if not Queue.objects.select_for_update().filter(pk=1, claimed_at=claim).exists():
            raise SchedulingLockLostError
        task = (
            load.filter_in_queue()
            .select_for_update(of=("self",))
            .select_related("cluster")
            .filter(pk=turn.task)
            .first()
        )
        if task is None:
            return False
        if task.select is not None and not node_selection.apply_selection(task, turn.start):
            return False
        if leases.acquire_leases(turn.start, task.pk):
            transaction.set_rollback(True)
            return False
        Task.objects.filter(pk=task.pk).update(in_line_at=None, turn={}, borrowed=turn.borrowed)
        if task.pk != current_task_id:
            wakeups.enqueue_task(task.pk)
    return True


class _ReasonWriter:
    """Stores why tasks wait, with as few writes as possible."""

    def __init__(self, scene: SchedulerSnapshot, names: Mapping[str, str]) -> None:
        self.names = names
        self.holders = {place: held for held in scene.running for place in held.places}
        self.waiting = {task.task: task for task in scene.waiting}

    @cached_property
    def before(self) -> dict[str, tuple[Any, ...]]:
        """Return the stored reason of each waiting task, read when the first one has to wait."""
        rows = load.filter_in_queue().values_list("pk", "reason", "reason_params", "turn", "attempt")
        return {row[0]: row[1:] for row in rows}

    def write_reason(self, turn: QueueEntry) -> None:
        """Store why the task waits, if that has changed."""
        if turn.task not in self.before or turn.why is None:
            return
        reason, params, known, attempt = self.before[turn.task]
        why = self._filled(turn, turn.why)
        stored = {"needs": list(turn.needs)} if why.code == TaskReason.MAKING_ROOM else {}
        far = turn.number > MAX_UPDATED_REASONS and reason == why.code
        if far or (reason, params, known) == (why.code, dict(why.params), stored):
            return
        with transaction.atomic():
            same = load.filter_in_queue().filter(pk=turn.task, attempt=attempt)
            if same.update(reason=why.code, reason_params=dict(why.params), turn=stored):
                wakeups.publish_change(turn.task, "status")

    def _filled(self, turn: QueueEntry, why: Problem) -> Problem:
        """Return the reason with the names of the holders, or with what is wrong with the environments, if the task
        named its environments."""
        if why.code == TaskReason.ENVIRONMENT_UNAVAILABLE:
            return Problem("", why.code, self._unusable(turn.task) or why.params)
        if why.code != TaskReason.WAITING_FOR_ENVIRONMENTS:
            return why
        task = self.waiting[turn.task]
        held = [(key, self.holders[key]) for key in task.named if key in self.holders]
        text = ", ".join(f"{self.names.get(key, key)} ({_get_display_name(by, task.project)})" for key, by in held)
        return Problem("", why.code, {"held": text, "holders": [{"environment": k, "task": by.task} for k, by in held]})

    @staticmethod
    def _unusable(task: str) -> dict[str, str]:
        job = JobSpec.from_json(Task.objects.values_list("spec", flat=True).get(pk=task))
        return placement.describe_first_unusable(job)


def _get_display_name(holder: RunningTask, project: str) -> str:
    """Return the holder's name for readers of the project's tasks; its id if it belongs to another project."""
    return (holder.name if holder.project == project else "") or holder.task


def _request_preemption(victim: Preemption, scene: SchedulerSnapshot) -> None:
    by = next((task for task in scene.waiting if task.task == victim.by), None)
    preemption_requests.request_preemption(
        victim.task, {"task": victim.by, "by": by.name if by else victim.by, "why": victim.why}
    )
