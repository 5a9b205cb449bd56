"""Where the next attempt goes on: the newest checkpoint that has not been tried in vain.

An attempt that resumed, failed by its own ranks and brought neither a step nor a checkpoint tried its checkpoint in
vain: it may be torn, or hold the numbers that made training diverge. From then on the one before it is taken, unless
the script has written the same path anew.

Of a task that is to stop or to roll back when its loss goes bad, what was saved after the last good step is left out,
too.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, islice

from apps.training.core import checkpoints
from apps.training.core.checkpoints import AUTO
from apps.training.core.engine_access import backend_for
from apps.training.models import Attempt, Checkpoint, Event, Finding, Task
from apps.training.states import Kind, State
from apps.training.states.reasons import Reason
from fermi.diagnosis import Level, loss_anomalies
from fermi.jobs.causes import BY_RANKS
from fermi.jobs.errors import BackendError, UnknownName
from fermi.jobs.spec import JobSpec

MOST_LOOKED_FOR = 20


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that the task's script announced: by which attempt last."""

    path: str
    attempt: int
    step: int = 0


@dataclass(frozen=True, slots=True)
class Point:
    """Where an attempt that began now would go on. `path`: empty without a checkpoint of the task's own, and then there
    is no `step` either. `reached`: the newest step that was printed; None: none was."""

    path: str = ""
    step: int | None = None
    saved_at: datetime | None = None
    attempt: int | None = None
    reached: int | None = None

    @property
    def lost(self) -> int | None:
        """Steps that would be trained again; None: nothing says how many."""
        return None if self.reached is None else max(self.reached - (self.step or 0), 0)


@dataclass(frozen=True, slots=True)
class Bad:
    """An attempt's loss from `step` on. `good`: the last step before it that was well; None: none of this attempt."""

    attempt: int
    step: int
    good: int | None


@dataclass(frozen=True, slots=True)
class Tried:
    """An attempt. `path`: what its script says it went on from, where it said so."""

    number: int
    resume_from: str
    path: str
    in_vain: bool


def tried_in_vain(attempts: Iterable[Tried], newest_first: Iterable[Saved]) -> frozenset[str]:
    """Pure. What `auto` meant to an attempt whose script did not say is the newest that was there and not known as
    bad."""
    saved = list(newest_first)
    bad: dict[str, int] = {}
    for one in sorted(attempts, key=lambda attempt: attempt.number):
        path = one.path or one.resume_from
        if path == AUTO:
            path = next((s.path for s in saved if s.attempt < one.number and s.path not in bad), "")
        if path and one.in_vain:
            bad[path] = one.number
    written_anew = {one.path for one in saved if one.attempt > bad.get(one.path, one.attempt)}
    return frozenset(bad) - written_anew


def spoilt(bad: Iterable[Bad], saved: Iterable[Saved]) -> frozenset[str]:
    """Pure. What was saved later than the last good step, by the attempt whose loss went bad or one before it."""
    limits = [(one.attempt, one.step - 1 if one.good is None else one.good) for one in bad]
    return frozenset(s.path for s in saved for attempt, good in limits if s.attempt <= attempt and s.step > good)


def point(task: Task) -> tuple[str, list[str]]:
    """What the next attempt is told, and which newer checkpoints it does without. The recipe's trainer looks for the
    newest one that is whole (`auto`); a user's script is told a path. Without a checkpoint of the task's own it is what
    the user asked for."""
    saved = list(_saved(task))
    if gone_bad := went_bad(task):
        return _before(task, saved, gone_bad)
    if not saved:
        return task.spec["resume_from"], []
    bad = _bad(task, saved, _resumed(task, ()))
    skipped = [one.path for one in saved if one.path in bad]
    good = [one.path for one in saved if one.path not in bad]
    if not skipped or not good:  # there is nothing else to try
        arrived = _there(task, good) if task.inside and task.spec["entrypoint"] else None
        return arrived or (saved[0].path if task.spec["entrypoint"] else AUTO), []
    if found := _there(task, good):
        newer = saved[: next(index for index, one in enumerate(saved) if one.path == found)]
        return found, [one.path for one in newer if one.path in bad]
    return (saved[0].path if task.spec["entrypoint"] else AUTO), []


def newest(task: Task) -> str | None:
    """The newest that is still there, was not tried in vain, and was saved before the loss went bad: scripts remove old
    ones, and so do people."""
    gone_bad = went_bad(task)
    left = (one for one in _saved(task) if not spoilt(gone_bad, [one]))
    if not (resumed := _resumed(task, gone_bad)):
        return _there(task, (one.path for one in left))
    saved = list(left)
    bad = _bad(task, saved, resumed, gone_bad)
    return _there(task, [one.path for one in saved if one.path not in bad] or [one.path for one in saved])


def outlook(task: Task) -> Point | None:
    """Where the task would go on; None: nothing of it has been trained, it needs no more, or its engine cannot be
    asked."""
    if task.kind != Kind.TRAINING or not task.attempt or task.state == State.SUCCEEDED:
        return None
    reached = task.progress.get("step")
    try:
        path = newest(task)
    except (BackendError, UnknownName):
        return None
    row = Checkpoint.objects.filter(task=task, path=path).first() if path else None
    return Point(row.path, row.step, row.at, row.attempt, reached) if row else Point(reached=reached)


def steps_without(task: Task, resume_from: str) -> int:
    """How many steps an attempt trains again that is told to resume where the task began, because no checkpoint of the
    task is known; 0: none."""
    if resume_from != task.spec["resume_from"] or any(_saved(task)):
        return 0
    return int(task.progress.get("step") or 0)


def went_bad(task: Task) -> list[Bad]:
    """For certain, and not over; only where the task is not to go on with it."""
    if task.spec.get("on_bad_loss", "report") == "report":
        return []
    rows = Finding.objects.filter(task=task, code__in=loss_anomalies.CODES, level=Level.FAIL, until=None).order_by(
        "attempt"
    )
    return [Bad(row.attempt, row.params["step"], row.params["good"]) for row in rows]


def _before(task: Task, saved: list[Saved], gone_bad: list[Bad]) -> tuple[str, list[str]]:
    """Always a path, as what `auto` finds may be bad. None from before: where the task began."""
    left_out = spoilt(gone_bad, saved)
    left = [one for one in saved if one.path not in left_out]
    bad = left_out | _bad(task, left, _resumed(task, gone_bad), gone_bad)
    found = _there(task, [one.path for one in left if one.path not in bad])
    if found is None:
        asked = task.spec["resume_from"]
        return ("" if asked == AUTO else asked), [one.path for one in saved]
    newer = saved[: next(index for index, one in enumerate(saved) if one.path == found)]
    return found, [one.path for one in newer if one.path in bad]


def _there(task: Task, candidates: Iterable[str]) -> str | None:
    backend, job = backend_for(task.cluster), JobSpec.from_json(task.spec)
    for path in islice(candidates, MOST_LOOKED_FOR):
        found = backend.problems(replace(job, resume_from=path))
        if not any(problem.field == "resumeFrom" for problem in found):
            return path
    return None


def _saved(task: Task) -> Iterator[Saved]:
    """Yield them, the newest first, without those that the script claims in other tasks' folders. Of many, most are
    read only once they are wanted."""
    rows = Checkpoint.objects.filter(task=task).order_by("-step", "-id").values_list("path", "attempt", "step")
    newest = list(rows[:MOST_LOOKED_FOR])
    is_own = checkpoints.make_claim_check(task.pk)
    others = rows[MOST_LOOKED_FOR:] if len(newest) == MOST_LOOKED_FOR else ()
    return (Saved(*row) for row in chain(newest, others) if is_own(row[0]))


def _resumed(task: Task, gone_bad: Iterable[Bad]) -> list[Attempt]:
    """Return the attempts that resumed and failed."""
    at_once = {one.attempt for one in gone_bad if one.good is None}
    return [
        one
        for one in task.attempts.all()
        if one.resume_from and (one.outcome in BY_RANKS or (one.outcome == Reason.BAD_LOSS and one.number in at_once))
    ]


def _bad(task: Task, saved: list[Saved], resumed: list[Attempt], gone_bad: Iterable[Bad] = ()) -> frozenset[str]:
    if not resumed:
        return frozenset()
    at_once = {one.attempt for one in gone_bad if one.good is None}
    numbers = [one.number for one in resumed]
    stepped = set(task.metrics.filter(attempt__in=numbers).values_list("attempt", flat=True).distinct())
    stepped = (stepped - at_once) | {one.attempt for one in saved}
    said = _said(task, numbers)
    return tried_in_vain([_tried(one, said, stepped) for one in resumed], saved)


def _said(task: Task, numbers: list[int]) -> Mapping[int, str]:
    rows = Event.objects.filter(task=task, attempt__in=numbers, code="SCRIPT_RESUMED").values_list("attempt", "params")
    return {
        attempt: checkpoints.announced(task.cluster, task.pk, str(params.get("path", ""))) for attempt, params in rows
    }


def _tried(attempt: Attempt, said: Mapping[int, str], stepped: set[int]) -> Tried:
    return Tried(attempt.number, attempt.resume_from, said.get(attempt.number, ""), attempt.number not in stepped)
