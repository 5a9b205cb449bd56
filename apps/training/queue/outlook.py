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
from fermi.scheduler.snapshot import Decision, EnvironmentInfo, QueueEntry, RunningTask, SchedulerSnapshot, WaitingTask
from fermi.scheduler.what_if import find_sooner_starts

MAX_AGE = timedelta(seconds=2)


@dataclass(frozen=True)
class QueueForecast:
    """A snapshot of the queue with the decision and the forecast for it."""

    at: datetime
    decided_at: datetime | None
    scene: SchedulerSnapshot
    decision: Decision
    forecasts: Mapping[str, Forecast]
    _sooner: dict[str, Sequence[Problem]] = field(default_factory=dict)

    def sooner(self, task: str) -> Sequence[Problem]:
        """Return changes that would let the task start now."""
        with _lock:
            if task not in self._sooner:
                self._sooner[task] = find_sooner_starts(self.scene, task, node_selection.PlacementCheck())
            return self._sooner[task]

    @cached_property
    def turns(self) -> Mapping[str, QueueEntry]:
        """Return each waiting task's entry in the decision, by task id."""
        return {turn.task: turn for turn in self.decision.turns}

    @cached_property
    def waiting(self) -> Mapping[str, WaitingTask]:
        """Return the waiting tasks by id."""
        return {one.task: one for one in self.scene.waiting}

    @cached_property
    def running_by_id(self) -> Mapping[str, RunningTask]:
        """Return the tasks that hold environments, by id."""
        return {one.task: one for one in self.scene.running}

    @cached_property
    def preemption_ends(self) -> Mapping[str, float]:
        """Return when tasks that will be preempted have saved and ended, in unix seconds by task id, where that is
        before their own end."""
        soon: dict[str, float] = {}
        for turn in self.decision.turns:
            if turn.room_at is not None:
                for task in turn.after:
                    soon[task] = min(turn.room_at + forecast.GRACE_SECONDS, soon.get(task, math.inf))
        return {task: at for task, at in soon.items() if at < (self.running_by_id[task].until or math.inf)}

    @cached_property
    def holders(self) -> Mapping[str, RunningTask]:
        """Return the task that holds each environment, by environment id."""
        return {place: one for one in self.scene.running for place in one.places}

    @cached_property
    def places(self) -> Mapping[str, EnvironmentInfo]:
        """Return the environments by id."""
        return {place.id: place for place in self.scene.places}


_lock = Lock()
_cached_forecast: QueueForecast | None = None


def get_queue_forecast() -> QueueForecast:
    """Return the current forecast, from the cache if it is fresh."""
    global _cached_forecast
    with _lock:
        moment = now()
        decided = Queue.objects.filter(pk=1).values_list("decided_at", flat=True).first()
        if (
            _cached_forecast is None
            or _cached_forecast.decided_at != decided
            or not timedelta() <= moment - _cached_forecast.at < MAX_AGE
        ):
            scene = load.load_snapshot(moment, history=runtime_estimates.load_history(moment))
            decision = scheduler.make_decision(scene, node_selection.PlacementCheck())
            _cached_forecast = QueueForecast(
                moment, decided, scene, decision, forecast.estimate_starts(scene, decision)
            )
        return _cached_forecast


def clear_cache() -> None:
    """Drop the cached forecast, after a user changed something whose result they read next."""
    global _cached_forecast
    _cached_forecast = None
