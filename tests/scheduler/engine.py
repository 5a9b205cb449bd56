"""The engine in simulation: what the platform does around a decision, from event to event, without a clock.

    arrive ──▶ waiting ──decide──▶ held ──▶ finished, or its time is up
                  ▲                 │
                  └── preempted, its environment broke

A task that starts first takes `starting` seconds, then trains; every `every` seconds of training it has saved a
checkpoint. A preempted task keeps its environments for `grace` seconds more. Whatever was trained after the newest
checkpoint is trained again. A task that merely fails starts again where it is.
"""

import dataclasses
import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from fermi.scheduler.snapshot import (
    Decision,
    EnvironmentInfo,
    Project,
    QueueEntry,
    Reservation,
    RunningTask,
    SchedulerSnapshot,
    WaitingTask,
)

DAY = 86_400.0
HALF_LIFE = 7 * DAY
MONTH = 30 * DAY

Decide = Callable[[SchedulerSnapshot], Decision]


@dataclass(slots=True)
class Job:
    """A task, and what became of it.

    work      seconds of training from its first to its last step
    fails     training seconds of an attempt after which that attempt fails, attempt by attempt
    saves     whether it saves a checkpoint when it is asked to end
    """

    ask: WaitingTask
    work: float
    every: float = 1800.0
    starting: float = 0.0
    fails: Sequence[float] = ()
    saves: bool = False
    min_run: float = 0.0

    saved: float = 0.0  # training seconds in the newest checkpoint
    began: float = 0.0  # when the attempt's first step was
    attempt: int = 0
    waits_since: float = 0.0
    waited: float = 0.0
    held_seconds: float = 0.0
    first_start: float | None = None
    ended: float | None = None
    finished: bool = False
    preemptions: int = 0
    lost: dict[str, list[float]] = field(default_factory=dict)  # cause -> seconds of each time

    def trained(self, now: float) -> float:
        return min(self.work, self.saved + max(0.0, now - self.began))

    def in_checkpoints(self, now: float) -> float:
        """Training seconds that checkpoints hold now."""
        return max(self.saved, min(self.trained(now), self.saved + (now - self.began) // self.every * self.every))


class Engine:
    """`watch` sees every snapshot with its decision before the decision is carried out."""

    def __init__(
        self,
        places: Iterable[EnvironmentInfo],
        projects: Iterable[Project],
        jobs: Iterable[Job],
        decide: Decide,
        *,
        reservations: Iterable[Reservation] = (),
        incidents: Iterable[tuple[float, Callable[["Engine"], None]]] = (),
        grace: float = 60.0,
        watch: Sequence[Callable[["Engine", SchedulerSnapshot, Decision], None]] = (),
    ) -> None:
        self.places = {place.id: place for place in places}
        self.projects = {project.id: project for project in projects}
        self.reservations = list(reservations)
        self.jobs = {job.ask.task: job for job in jobs}
        self.decide, self.grace, self.watch = decide, grace, watch
        self.waiting: dict[str, WaitingTask] = {}
        self.held: dict[str, RunningTask] = {}
        self.holder: dict[str, str] = {}  # environment -> task
        self.now, self.decisions, self.disturbed = 0.0, 0, 0.0
        self.busy: list[tuple[float, float, int]] = []  # from, to, GPUs: every holding that ended
        self._used: dict[str, tuple[float, float]] = {}  # project -> (GPU-seconds, when that was true)
        self._hours: dict[tuple[int, str, str], float] = {}  # (month, project, user) -> GPU-hours
        self._agenda: list[tuple[float, int, Callable[[], None], bool]] = []
        self._number = count()
        self._tuple: tuple[EnvironmentInfo, ...] | None = None
        self._again: float | None = None
        for job in self.jobs.values():
            self.at(job.ask.since, lambda job=job: self._arrive(job))
        for moment, incident in incidents:
            self.at(moment, lambda incident=incident: incident(self))
        for window in self.reservations:
            self.at(window.ends, lambda window=window: self.reservations.remove(window))

    # Time

    def at(self, moment: float, action: Callable[[], None], *, matters: bool = True) -> None:
        """`matters`: a decision may be another one afterwards."""
        heapq.heappush(self._agenda, (moment, next(self._number), action, matters))

    def run(self, until: float = float("inf")) -> "Engine":
        while self._agenda and self._agenda[0][0] <= until:
            self.now, due = self._agenda[0][0], False
            while self._agenda and self._agenda[0][0] == self.now:
                _, _, action, matters = heapq.heappop(self._agenda)
                action()
                due |= matters
            if due and self.waiting:
                self._turn()
        return self

    # What is decided

    def snapshot(self) -> SchedulerSnapshot:
        if self._tuple is None:
            self._tuple = tuple(self.places.values())
        projects = {name: self._project(project) for name, project in self.projects.items()}
        waiting, held = tuple(self.waiting.values()), tuple(self.held.values())
        return SchedulerSnapshot(self.now, waiting, held, self._tuple, projects, tuple(self.reservations))

    def _turn(self) -> None:
        snapshot = self.snapshot()
        decision = self.decide(snapshot)
        self.decisions += 1
        for watch in self.watch:
            watch(self, snapshot, decision)
        for turn in decision.turns:
            if turn.start:
                self._start(self.jobs[turn.task], turn.start)
            else:
                self._promise(turn)
        for one in decision.preempt:
            self._ask_to_end(self.jobs[one.task])
        again = decision.again
        if again is not None and again > self.now and (self._again is None or not self.now < self._again <= again):
            self._again = again
            self.at(again, lambda: None)

    def _promise(self, turn: QueueEntry) -> None:
        """What others give up for a task stays its own."""
        making = turn.why is not None and turn.why.code == "MAKING_ROOM"
        promised, ask = turn.needs if making else (), self.waiting[turn.task]
        if ask.promised != promised:
            self.waiting[turn.task] = dataclasses.replace(ask, promised=promised)

    def _project(self, project: Project) -> Project:
        value, when = self._used.get(project.id, (0.0, self.now))
        month = int(self.now // MONTH)
        spent: dict[str, float] = {
            user: hours for (at, of, user), hours in self._hours.items() if (at, of) == (month, project.id)
        }
        for held in self.held.values():
            if held.project == project.id:
                running = self.gpus(held.places) * (self.now - max(held.since, month * MONTH)) / 3600
                spent[held.user] = spent.get(held.user, 0.0) + running
        used = value * 0.5 ** ((self.now - when) / HALF_LIFE)
        return dataclasses.replace(project, used=used, spent_hours=sum(spent.values()), spent_by_user=spent)

    def gpus(self, places: Iterable[str]) -> int:
        return sum(self.places[key].gpus for key in places)

    # What happens to a task

    def _arrive(self, job: Job) -> None:
        job.waits_since = self.now
        self.waiting[job.ask.task] = job.ask

    def _start(self, job: Job, places: tuple[str, ...]) -> None:
        ask = self.waiting.pop(job.ask.task)
        for key in places:
            self.holder[key] = ask.task
        job.waited += self.now - job.waits_since
        job.first_start = self.now if job.first_start is None else job.first_start
        until = None if ask.max_run is None else self.now + ask.max_run
        expected = None if ask.expected_run is None else self.now + ask.expected_run
        self.held[ask.task] = RunningTask(
            ask.task,
            ask.project,
            ask.user,
            places,
            self.now,
            ask.priority,
            ask.preemptible,
            job.min_run,
            until,
            expected,
        )
        if until is not None:
            self.at(until, self._of(job, lambda: self._release(job, ended=True), stay=True))
        self._begin(job)

    def _begin(self, job: Job) -> None:
        """An attempt, from its newest checkpoint."""
        job.attempt += 1
        job.began = self.now + job.starting
        lasts = job.work - job.saved
        fails = job.fails[job.attempt - 1] if job.attempt <= len(job.fails) else lasts
        if fails < lasts:
            self.at(job.began + fails, self._of(job, lambda: self._fail(job)), matters=False)
        else:
            self.at(job.began + lasts, self._of(job, lambda: self._release(job, ended=True)))
        self._expect_checkpoint(job)

    def _expect_checkpoint(self, job: Job, number: int = 1) -> None:
        if job.saved + number * job.every < job.work:
            checkpoint = self._of(job, lambda: self._checkpoint(job, number))
            self.at(job.began + number * job.every, checkpoint, matters=False)

    def _checkpoint(self, job: Job, number: int) -> None:
        self.held[job.ask.task] = dataclasses.replace(self.held[job.ask.task], saved_at=self.now)
        self._expect_checkpoint(job, number + 1)

    def _of(self, job: Job, action: Callable[[], None], stay: bool = False) -> Callable[[], None]:
        """Nothing, once the attempt is over; with `stay`, once this holding is over."""
        task, attempt, since = job.ask.task, job.attempt, self.now

        def run() -> None:
            held = self.held.get(task)
            if held and (held.since == since if stay else job.attempt == attempt):
                action()

        return run

    def _fail(self, job: Job) -> None:
        self._keep(job, "failure", saves=False)
        self._begin(job)

    def _ask_to_end(self, job: Job) -> None:
        held = self.held[job.ask.task]
        self.held[job.ask.task] = dataclasses.replace(held, leaving=True)
        job.preemptions += 1
        self._keep(job, "preemption", job.saves)
        job.attempt += 1  # nothing else ends this attempt
        self.at(self.now + self.grace, self._of(job, lambda: self._release(job)))

    def _keep(self, job: Job, cause: str, saves: bool) -> None:
        """What is left of the attempt's work is in checkpoints."""
        trained = job.trained(self.now)
        job.saved = trained if saves else job.in_checkpoints(self.now)
        job.lost.setdefault(cause, []).append(trained - job.saved)
        job.began = float("inf")  # until the next attempt

    def _release(self, job: Job, ended: bool = False) -> None:
        """Gives the environments back: for good, or to wait again with the age that it has."""
        held = self.held.pop(job.ask.task)
        for key in held.places:
            del self.holder[key]
        seconds, gpus = self.now - held.since, self.gpus(held.places)
        job.held_seconds += seconds
        self.busy.append((held.since, self.now, gpus))
        used, when = self._used.get(held.project, (0.0, self.now))
        self._used[held.project] = (used * 0.5 ** ((self.now - when) / HALF_LIFE) + gpus * seconds, self.now)
        month = int(self.now // MONTH)
        key = (month, held.project, held.user)
        hours = gpus * (self.now - max(held.since, month * MONTH)) / 3600
        self._hours[key] = self._hours.get(key, 0.0) + hours
        if ended:
            job.finished, job.ended = job.trained(self.now) >= job.work - 0.001, self.now
            return
        ask = job.ask
        if ask.max_run is not None:
            ask = dataclasses.replace(ask, max_run=max(1.0, ask.max_run - seconds))
        if ask.expected_run is not None:
            ask = dataclasses.replace(ask, expected_run=max(1.0, ask.expected_run - seconds))
        job.ask, job.waits_since = ask, self.now
        self.waiting[ask.task] = ask

    # What happens to the world: incidents call these

    def set_usable(self, place: str, usable: bool) -> None:
        """It breaks, with the task on it, or it is whole again."""
        self.disturbed = self.now
        self.places[place] = dataclasses.replace(self.places[place], usable=usable)
        self._tuple = None
        if not usable and (task := self.holder.get(place)):
            job = self.jobs[task]
            if not self.held[task].leaving:
                self._keep(job, "broken", saves=False)
            self._release(job)

    def reserve(self, window: Reservation) -> None:
        self.disturbed = self.now
        self.reservations.append(window)
        self.at(window.ends, lambda: self.reservations.remove(window))

    def change(self, project: str, **limits: object) -> None:
        self.disturbed = self.now
        self.projects[project] = dataclasses.replace(self.projects[project], **limits)
