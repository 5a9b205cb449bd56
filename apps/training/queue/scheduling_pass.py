"""One decision for all tasks that wait, carried out task by task.

    claim the queue's row ─▶ load the scene ─▶ decide (pure) ─▶ for each that starts: settle its nodes, take its leases
                                                                for each victim: ask it to give way
                                                                for each other: why it waits, where that is new

Level-triggered, as a pass over a task is: a decision needs nothing but the database, hints only make it sooner, and one
that dies half-way is made anew by whoever comes next. What was carried out stands: each task starts in a transaction of
its own that holds only while the claim does. Leases decide races with whoever takes environments past the queue.
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
"""Whoever decides looks again where something changed meanwhile, so often at most; then the sweep does."""
TOLD = 200
"""Of the first so many in the queue, what they wait for is kept up to date; of the others, where its kind changes."""


class Lost(Exception):
    """Somebody else decides now."""


def decide_if_due(task: str = "") -> None:
    """Decides as long as something changes, unless somebody does so already: they look again before they go. `task`:
    whose pass this is; it needs no hint."""
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
    """What is changed from here on makes the queue due anew."""
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
    """Whether it has its environments now. It begins in its own pass."""
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
    """Says why tasks wait, with as few writes as that takes."""

    def __init__(self, scene: Scene, names: Mapping[str, str]) -> None:
        self.names = names
        self.holders = {place: held for held in scene.held for place in held.places}
        self.waiting = {task.task: task for task in scene.waiting}

    @cached_property
    def before(self) -> dict[str, tuple[Any, ...]]:
        """What was said of each last: asked for when the first has to wait."""
        rows = load.in_line().values_list("pk", "reason", "reason_params", "turn", "attempt")
        return {row[0]: row[1:] for row in rows}

    def say(self, turn: Turn) -> None:
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
        """Who holds what is named where environments were asked for by name, and what is wrong with them."""
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
    """For readers of the project's tasks: whose names they may not know are called by their ids."""
    return (holder.name if holder.project == project else "") or holder.task


def _ask(victim: Preempt, scene: Scene) -> None:
    by = next((task for task in scene.waiting if task.task == victim.by), None)
    preemption.ask(victim.task, {"task": victim.by, "by": by.name if by else victim.by, "why": victim.why})
