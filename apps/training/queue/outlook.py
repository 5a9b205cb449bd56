"""The queue as users see it: what a scheduling pass would decide now, and when each task will probably start.

It is computed once for all readers of a process, and again after a scheduling pass or MAX_AGE.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from threading import Lock

from apps.common.clock import now
from apps.training.models import Queue
from apps.training.queue import load, node_selection, runtime_estimates
from fermi.jobs.spec import Problem
from fermi.scheduler import forecast, scheduler
from fermi.scheduler.forecast import Forecast
from fermi.scheduler.snapshot import Decision, Held, Place, Scene, Turn, Waiting
from fermi.scheduler.what_if import sooner

FRESH = timedelta(seconds=2)


@dataclass(frozen=True)
class View:
    """A snapshot of the queue with the decision and the forecast for it."""

    at: datetime
    decided_at: datetime | None
    scene: Scene
    decision: Decision
    forecasts: Mapping[str, Forecast]
    _sooner: dict[str, Sequence[Problem]] = field(default_factory=dict)

    def sooner(self, task: str) -> Sequence[Problem]:
        """Return changes that would let the task start now."""
        with _lock:
            if task not in self._sooner:
                self._sooner[task] = sooner(self.scene, task, node_selection.Fits())
            return self._sooner[task]

    @cached_property
    def turns(self) -> Mapping[str, Turn]:
        """Return each waiting task's entry in the decision, by task id."""
        return {turn.task: turn for turn in self.decision.turns}

    @cached_property
    def waiting(self) -> Mapping[str, Waiting]:
        """Return the waiting tasks by id."""
        return {one.task: one for one in self.scene.waiting}

    @cached_property
    def held(self) -> Mapping[str, Held]:
        """Return the tasks that hold environments, by id."""
        return {one.task: one for one in self.scene.held}

    @cached_property
    def gives_way(self) -> Mapping[str, float]:
        """Return when tasks that will be preempted have saved and ended, in unix seconds by task id, where that is
        before their own end."""
        soon: dict[str, float] = {}
        for turn in self.decision.turns:
            if turn.room_at is not None:
                for task in turn.after:
                    soon[task] = min(turn.room_at + forecast.GRACE, soon.get(task, math.inf))
        return {task: at for task, at in soon.items() if at < (self.held[task].until or math.inf)}

    @cached_property
    def holders(self) -> Mapping[str, Held]:
        """Return the task that holds each environment, by environment id."""
        return {place: one for one in self.scene.held for place in one.places}

    @cached_property
    def places(self) -> Mapping[str, Place]:
        """Return the environments by id."""
        return {place.id: place for place in self.scene.places}


_lock = Lock()
_known: View | None = None


def view() -> View:
    """Return the current forecast, from the cache if it is fresh."""
    global _known
    with _lock:
        moment = now()
        decided = Queue.objects.filter(pk=1).values_list("decided_at", flat=True).first()
        if _known is None or _known.decided_at != decided or not timedelta() <= moment - _known.at < FRESH:
            scene = load.scene(moment, past=runtime_estimates.past(moment))
            decision = scheduler.decide(scene, node_selection.Fits())
            _known = View(moment, decided, scene, decision, forecast.estimate(scene, decision))
        return _known


def forget() -> None:
    """Drop the cached forecast, after a user changed something whose result they read next."""
    global _known
    _known = None
