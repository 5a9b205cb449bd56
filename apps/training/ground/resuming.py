"""Where the next attempt goes on: the newest checkpoint that has not been tried in vain.

An attempt that resumed, failed by its own ranks and brought neither a step nor a checkpoint tried its checkpoint in
vain: it may be torn, or hold the numbers that made training diverge. From then on the one before it is taken, unless
the script has written the same path anew.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from apps.clusters import paths
from apps.training.ground import checkpoints
from apps.training.ground.checkpoints import AUTO
from apps.training.ground.launching import backend_for
from apps.training.models import Attempt, Checkpoint, Event, Task
from fermi.launch.causes import BY_RANKS
from fermi.launch.spec import JobSpec

MOST_LOOKED_FOR = 20


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that the task's script announced: by which attempt last."""

    path: str
    attempt: int


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


def point(task: Task) -> tuple[str, list[str]]:
    """What the next attempt is told, and which newer checkpoints it does without. The recipe's trainer looks for the
    newest one that is whole (`auto`); a user's script is told a path. Without a checkpoint of the task's own it is what
    the user asked for."""
    saved = _saved(task)
    if not saved:
        return task.spec["resume_from"], []
    bad = _bad(task, saved)
    skipped = [one.path for one in saved if one.path in bad]
    good = [one.path for one in saved if one.path not in bad]
    if not skipped or not good:  # there is nothing else to try
        return (saved[0].path if task.spec["entrypoint"] else AUTO), []
    if found := _there(task, good):
        newer = saved[: next(index for index, one in enumerate(saved) if one.path == found)]
        return found, [one.path for one in newer if one.path in bad]
    return (saved[0].path if task.spec["entrypoint"] else AUTO), []


def newest(task: Task) -> str | None:
    """The newest that is still there and was not tried in vain: scripts remove old ones, and so do people."""
    saved = _saved(task)
    bad = _bad(task, saved)
    return _there(task, [one.path for one in saved if one.path not in bad] or [one.path for one in saved])


def _there(task: Task, candidates: Iterable[str]) -> str | None:
    backend, job = backend_for(task.cluster), JobSpec.from_json(task.spec)
    for path in list(candidates)[:MOST_LOOKED_FOR]:
        found = backend.problems(replace(job, resume_from=path))
        if not any(problem.field == "resumeFrom" for problem in found):
            return path
    return None


def _saved(task: Task) -> list[Saved]:
    """Without those that the script claims in other tasks' folders."""
    rows = Checkpoint.objects.filter(task=task).order_by("-step", "-id").values_list("path", "attempt")
    return [Saved(path, attempt) for path, attempt in rows if checkpoints.is_of(task.pk, path)]


def _bad(task: Task, saved: list[Saved]) -> frozenset[str]:
    """No more than a query or two where no attempt that resumed has failed."""
    resumed = [one for one in task.attempts.all() if one.resume_from and one.outcome in BY_RANKS]
    if not resumed:
        return frozenset()
    numbers = [one.number for one in resumed]
    stepped = set(task.metrics.filter(attempt__in=numbers).values_list("attempt", flat=True).distinct())
    stepped |= {one.attempt for one in saved}
    said = _said(task, numbers)
    return tried_in_vain([_tried(one, said, stepped) for one in resumed], saved)


def _said(task: Task, numbers: list[int]) -> Mapping[int, str]:
    rows = Event.objects.filter(task=task, attempt__in=numbers, code="SCRIPT_RESUMED").values_list("attempt", "params")
    return {attempt: paths.here(task.cluster, str(params.get("path", ""))) for attempt, params in rows}


def _tried(attempt: Attempt, said: Mapping[int, str], stepped: set[int]) -> Tried:
    return Tried(attempt.number, attempt.resume_from, said.get(attempt.number, ""), attempt.number not in stepped)
