"""Chooses the checkpoint that the next attempt resumes from: the newest one that has not failed before.

An attempt that resumed, failed by its own ranks and brought neither a step nor a checkpoint marks its checkpoint as
failed: it may be torn, or hold the numbers that made training diverge. From then on the one before it is taken, unless
the script has written the same path again.

For a task that has to stop or roll back when its loss goes bad, checkpoints saved after the last good step are left
out, too.
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
"""Most checkpoints that the backend is asked for before the search ends."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that the task's script announced, with the attempt that wrote it last."""

    path: str
    attempt: int
    step: int = 0


@dataclass(frozen=True, slots=True)
class Point:
    """Where an attempt that started now would resume. `path` is empty without a checkpoint of the task, and `step` is
    None then. `reached`: the newest step that was printed; None: no step was printed."""

    path: str = ""
    step: int | None = None
    saved_at: datetime | None = None
    attempt: int | None = None
    reached: int | None = None

    @property
    def lost(self) -> int | None:
        """Return the number of steps that would be trained again; None if it is not known."""
        return None if self.reached is None else max(self.reached - (self.step or 0), 0)


@dataclass(frozen=True, slots=True)
class Bad:
    """An attempt whose loss went bad at `step`. `good`: the last good step before it; None: the attempt had none."""

    attempt: int
    step: int
    good: int | None


@dataclass(frozen=True, slots=True)
class Tried:
    """An attempt that resumed. `path`: the checkpoint that its script reports to have loaded, empty if it reported
    none; `in_vain`: it produced neither a step nor a checkpoint."""

    number: int
    resume_from: str
    path: str
    in_vain: bool


def tried_in_vain(attempts: Iterable[Tried], newest_first: Iterable[Saved]) -> frozenset[str]:
    """Return the paths of checkpoints that an attempt resumed from in vain and that were not written again since.

    Pure. For an attempt with `auto` whose script did not report a path, the newest checkpoint that existed then and was
    not known as bad is assumed.
    """
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
    """Return the paths of checkpoints saved after the last good step, by the attempt whose loss went bad or an earlier
    one. Pure."""
    limits = [(one.attempt, one.step - 1 if one.good is None else one.good) for one in bad]
    return frozenset(s.path for s in saved for attempt, good in limits if s.attempt <= attempt and s.step > good)


def point(task: Task) -> tuple[str, list[str]]:
    """Return the checkpoint path for the next attempt, and the newer checkpoints that it skips.

    The recipe's trainer searches for the newest complete checkpoint itself (`auto`); a user's script gets a path.
    Without a checkpoint of the task it is what the user requested.
    """
    saved = list(_saved(task))
    if gone_bad := went_bad(task):
        return _before(task, saved, gone_bad)
    if not saved:
        return task.spec["resume_from"], []
    bad = _bad(task, saved, _resumed(task, ()))
    skipped = [one.path for one in saved if one.path in bad]
    good = [one.path for one in saved if one.path not in bad]
    if not skipped or not good:  # no other checkpoint to try
        arrived = _there(task, good) if task.inside and task.spec["entrypoint"] else None
        return arrived or (saved[0].path if task.spec["entrypoint"] else AUTO), []
    if found := _there(task, good):
        newer = saved[: next(index for index, one in enumerate(saved) if one.path == found)]
        return found, [one.path for one in newer if one.path in bad]
    return (saved[0].path if task.spec["entrypoint"] else AUTO), []


def newest(task: Task) -> str | None:
    """Return the path of the newest usable checkpoint: it still exists (scripts and users delete old ones), has not
    failed and was saved before the loss went bad. None if there is none. Raises BackendError and UnknownName."""
    gone_bad = went_bad(task)
    left = (one for one in _saved(task) if not spoilt(gone_bad, [one]))
    if not (resumed := _resumed(task, gone_bad)):
        return _there(task, (one.path for one in left))
    saved = list(left)
    bad = _bad(task, saved, resumed, gone_bad)
    return _there(task, [one.path for one in saved if one.path not in bad] or [one.path for one in saved])


def outlook(task: Task) -> Point | None:
    """Return where the task would resume; None if nothing of it was trained, it needs no more training, or its engine
    cannot be asked."""
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
    """Return the number of steps that an attempt trains again because it resumes where the task began, without any
    checkpoint of the task; otherwise 0."""
    if resume_from != task.spec["resume_from"] or any(_saved(task)):
        return 0
    return int(task.progress.get("step") or 0)


def went_bad(task: Task) -> list[Bad]:
    """Return the attempts whose loss has certainly gone bad and not recovered, oldest first. Empty if the task only
    reports a bad loss."""
    if task.spec.get("on_bad_loss", "report") == "report":
        return []
    rows = Finding.objects.filter(task=task, code__in=loss_anomalies.CODES, level=Level.FAIL, until=None).order_by(
        "attempt"
    )
    return [Bad(row.attempt, row.params["step"], row.params["good"]) for row in rows]


def _before(task: Task, saved: list[Saved], gone_bad: list[Bad]) -> tuple[str, list[str]]:
    """Return the path to resume from after a bad loss, and the skipped checkpoints. It is always a path, because what
    `auto` finds may be bad; without an earlier checkpoint it is where the task began."""
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
    """Return the first of `candidates` that the backend finds; None if none of the first MAX_CHECKPOINTS_CHECKED
    exists."""
    backend, job = backend_for(task.cluster), JobSpec.from_json(task.spec)
    for path in islice(candidates, MOST_LOOKED_FOR):
        found = backend.problems(replace(job, resume_from=path))
        if not any(problem.field == "resumeFrom" for problem in found):
            return path
    return None


def _saved(task: Task) -> Iterator[Saved]:
    """Yield the task's checkpoints, newest first, without those that the script claims in other tasks' folders. Beyond
    the first MAX_CHECKPOINTS_CHECKED, rows are read only when they are consumed."""
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
    """Return the paths that `resumed` attempts tried in vain."""
    if not resumed:
        return frozenset()
    at_once = {one.attempt for one in gone_bad if one.good is None}
    numbers = [one.number for one in resumed]
    stepped = set(task.metrics.filter(attempt__in=numbers).values_list("attempt", flat=True).distinct())
    stepped = (stepped - at_once) | {one.attempt for one in saved}
    said = _said(task, numbers)
    return tried_in_vain([_tried(one, said, stepped) for one in resumed], saved)


def _said(task: Task, numbers: list[int]) -> Mapping[int, str]:
    """Return the path that each attempt's script reported to have loaded, by attempt number."""
    rows = Event.objects.filter(task=task, attempt__in=numbers, code="SCRIPT_RESUMED").values_list("attempt", "params")
    return {
        attempt: checkpoints.announced(task.cluster, task.pk, str(params.get("path", ""))) for attempt, params in rows
    }


def _tried(attempt: Attempt, said: Mapping[int, str], stepped: set[int]) -> Tried:
    return Tried(attempt.number, attempt.resume_from, said.get(attempt.number, ""), attempt.number not in stepped)
