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
from apps.training.queue import load, node_selection, preemption
from apps.training.states.limits import DECIDE_AGAIN, DECIDING
from apps.training.states.reasons import Reason
from fermi.jobs.spec import JobSpec, Problem
from fermi.scheduler import scheduler
from fermi.scheduler.snapshot import Held, Preempt, Scene, Turn

log = logging.getLogger(__name__)

ROUNDS = 4
"""Most passes in a row while something keeps changing; after that the sweep runs the next one."""
TOLD = 200
"""The reasons of the first so many tasks in the queue are kept up to date; of the others only when the code changes."""


class Lost(Exception):
    """Raised if another process has taken the queue's claim over."""


def decide_if_due(task: str = "") -> None:
    """Run scheduling passes as long as something changes, unless another process runs one: it checks again before it
    ends. `current_task_id`: the task whose pass calls this; it needs no hint."""
    for _ in range(ROUNDS):
        if not Queue.objects.filter(due_at__lte=now()).exists():
            return
        claim = _claim()
        if claim is None:
            return
        try:
            again = _decide(claim, task)
        except Lost:
            log.warning("the queue's claim was taken over: the decision took longer than %s", DECIDING)
            return
        except Exception:
            _let_go(claim, now() + DECIDING)
            raise
        _let_go(claim, again)


def _claim() -> datetime | None:
    """Claim the queue and return the claim; None if another process has it. A change from here on makes the queue due
    again."""
    moment = now()
    claim = moment + timedelta(microseconds=random.randrange(1_000_000))
    free = Q(claimed_at=None) | Q(claimed_at__lt=moment - DECIDING)
    mine = Queue.objects.filter(free, pk=1, due_at__lte=moment).update(claimed_at=claim, due_at=None)
    return claim if mine else None


def _let_go(claim: datetime, again: datetime | None) -> None:
    mine = Queue.objects.filter(pk=1, claimed_at=claim)
    with transaction.atomic():
        if again is not None:
            mine.filter(Q(due_at=None) | Q(due_at__gt=again)).update(due_at=again)
        mine.update(claimed_at=None, decided_at=now())


def _decide(claim: datetime, me: str) -> datetime | None:
    moment = now()
    if not load.in_line().exists():
        return None
    scene = load.scene(moment)
    decision = scheduler.decide(scene, node_selection.Fits())
    names = {place.id: place.name for place in scene.places}
    told = _Told(scene, names)
    started = 0
    for turn in decision.turns:
        if turn.start:
            started += _start(turn, claim, me)
        else:
            told.say(turn)
    for victim in decision.preempt:
        _ask(victim, scene)
    if not load.in_line().exists():
        return None
    soon = moment + DECIDE_AGAIN
    by_time = datetime.fromtimestamp(decision.again, moment.tzinfo) if decision.again is not None else soon
    return min(max(by_time, moment), soon)


def _start(turn: Turn, claim: datetime, me: str) -> bool:
    """Give the task its environments; return False if it could not get them. Its own pass starts the attempt. Raises
    SchedulingLockLostError."""
    with transaction.atomic():
        if not Queue.objects.select_for_update().filter(pk=1, claimed_at=claim).exists():
            raise Lost
        task = load.in_line().select_for_update(of=("self",)).select_related("cluster").filter(pk=turn.task).first()
        if task is None:
            return False
        if task.select is not None and not node_selection.settle(task, turn.start):
            return False
        if leases.take(turn.start, task.pk):
            transaction.set_rollback(True)
            return False
        Task.objects.filter(pk=task.pk).update(in_line_at=None, turn={}, borrowed=turn.borrowed)
        if task.pk != me:
            wakeups.poke(task.pk)
    return True


class _Told:
    """Stores why tasks wait, with as few writes as possible."""

    def __init__(self, scene: Scene, names: Mapping[str, str]) -> None:
        self.names = names
        self.holders = {place: held for held in scene.held for place in held.places}
        self.waiting = {task.task: task for task in scene.waiting}

    @cached_property
    def before(self) -> dict[str, tuple[Any, ...]]:
        """Return the stored reason of each waiting task, read when the first one has to wait."""
        rows = load.in_line().values_list("pk", "reason", "reason_params", "turn", "attempt")
        return {row[0]: row[1:] for row in rows}

    def say(self, turn: Turn) -> None:
        """Store why the task waits, if that has changed."""
        if turn.task not in self.before or turn.why is None:
            return
        reason, params, known, attempt = self.before[turn.task]
        why = self._filled(turn, turn.why)
        stored = {"needs": list(turn.needs)} if why.code == Reason.MAKING_ROOM else {}
        far = turn.number > TOLD and reason == why.code
        if far or (reason, params, known) == (why.code, dict(why.params), stored):
            return
        with transaction.atomic():
            same = load.in_line().filter(pk=turn.task, attempt=attempt)
            if same.update(reason=why.code, reason_params=dict(why.params), turn=stored):
                wakeups.changed(turn.task, "status")

    def _filled(self, turn: Turn, why: Problem) -> Problem:
        """Return the reason with the names of the holders, or with what is wrong with the environments, if the task
        named its environments."""
        if why.code == Reason.ENVIRONMENT_UNAVAILABLE:
            return Problem("", why.code, self._unusable(turn.task) or why.params)
        if why.code != Reason.WAITING_FOR_ENVIRONMENTS:
            return why
        task = self.waiting[turn.task]
        held = [(key, self.holders[key]) for key in task.named if key in self.holders]
        text = ", ".join(f"{self.names.get(key, key)} ({_name(by, task.project)})" for key, by in held)
        return Problem("", why.code, {"held": text, "holders": [{"environment": k, "task": by.task} for k, by in held]})

    @staticmethod
    def _unusable(task: str) -> dict[str, str]:
        job = JobSpec.from_json(Task.objects.values_list("spec", flat=True).get(pk=task))
        return placement.first_unusable(job)


def _name(holder: Held, project: str) -> str:
    """Return the holder's name for readers of the project's tasks; its id if it belongs to another project."""
    return (holder.name if holder.project == project else "") or holder.task


def _ask(victim: Preempt, scene: Scene) -> None:
    by = next((task for task in scene.waiting if task.task == victim.by), None)
    preemption.ask(victim.task, {"task": victim.by, "by": by.name if by else victim.by, "why": victim.why})
