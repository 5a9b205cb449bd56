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

from apps.common.clock import now
from apps.training.core import checkpoint_nodes, checkpoints
from apps.training.core.checkpoints import AUTO
from apps.training.core.engine_access import get_backend
from apps.training.models import Attempt, Checkpoint, CheckpointSource, Event, Finding, Task
from apps.training.states import TaskKind, TaskState
from apps.training.states.reasons import TaskReason
from fermi.diagnosis import Level, loss_anomalies
from fermi.jobs.causes import RANK_CODES
from fermi.jobs.errors import BackendError, UnknownNameError
from fermi.jobs.spec import JobSpec
from fermi.metrics.records import WEIGHT_LAYOUTS

MAX_CHECKPOINTS_CHECKED = 20
"""Most checkpoints that the backend is asked for before the search ends."""


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint that the task's script announced, or its runner found, with the attempt that wrote it last."""

    path: str
    attempt: int
    step: int = 0


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where an attempt that started now would resume. `path` is empty without a checkpoint of the task, and `step` is
    None then. `reached`: the newest step that was printed; None: no step was printed. `knows_how`: the script announces
    its checkpoints, or a rule says how it takes one; `seconds`: how long the attempt has trained since then."""

    path: str = ""
    step: int | None = None
    saved_at: datetime | None = None
    attempt: int | None = None
    reached: int | None = None
    knows_how: bool = True
    seconds: float | None = None

    @property
    def lost(self) -> int | None:
        """Return the number of steps that would be trained again; None if it is not known."""
        return None if self.reached is None else max(self.reached - (self.step or 0), 0)


@dataclass(frozen=True, slots=True)
class DivergedAttempt:
    """An attempt whose loss went bad at `step`. `good`: the last good step before it; None: the attempt had none."""

    attempt: int
    step: int
    good: int | None


@dataclass(frozen=True, slots=True)
class ResumeAttempt:
    """An attempt that resumed. `path`: the checkpoint that its script reports to have loaded, empty if it reported
    none; `in_vain`: it produced neither a step nor a checkpoint."""

    number: int
    resume_from: str
    path: str
    in_vain: bool


def find_failed_checkpoints(
    attempts: Iterable[ResumeAttempt], newest_first: Iterable[SavedCheckpoint]
) -> frozenset[str]:
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


def find_diverged_checkpoints(diverged: Iterable[DivergedAttempt], saved: Iterable[SavedCheckpoint]) -> frozenset[str]:
    """Return the paths of checkpoints saved after the last good step, by the attempt whose loss went bad or an earlier
    one. Pure."""
    limits = [(one.attempt, one.step - 1 if one.good is None else one.good) for one in diverged]
    return frozenset(s.path for s in saved for attempt, good in limits if s.attempt <= attempt and s.step > good)


def choose_resume_path(task: Task) -> tuple[str, list[str]]:
    """Return the checkpoint path for the next attempt, and the newer checkpoints that it skips.

    The recipe's trainer searches for the newest complete checkpoint itself (`auto`); a user's script gets a path.
    Without a checkpoint of the task it is what the user requested.
    """
    saved = list(_list_saved(task))
    if gone_bad := list_diverged_attempts(task):
        return _choose_before_divergence(task, saved, gone_bad)
    if not saved:
        return task.spec["resume_from"], []
    bad = _find_failed_paths(task, saved, _list_failed_resumes(task, ()))
    skipped = [one.path for one in saved if one.path in bad]
    good = [one.path for one in saved if one.path not in bad]
    if not skipped or not good:  # no other checkpoint to try
        arrived = find_existing(task, good) if task.spec["entrypoint"] else None  # scripts delete old ones
        return arrived or (saved[0].path if task.spec["entrypoint"] else AUTO), []
    if found := find_existing(task, good):
        newer = saved[: next(index for index, one in enumerate(saved) if one.path == found)]
        return found, [one.path for one in newer if one.path in bad]
    return (saved[0].path if task.spec["entrypoint"] else AUTO), []


def find_newest_checkpoint(task: Task) -> str | None:
    """Return the path of the newest usable checkpoint: it still exists (scripts and users delete old ones), has not
    failed and was saved before the loss went bad. None if there is none. Raises BackendError and UnknownName."""
    gone_bad = list_diverged_attempts(task)
    left = (one for one in _list_saved(task) if not find_diverged_checkpoints(gone_bad, [one]))
    if not (resumed := _list_failed_resumes(task, gone_bad)):
        return find_existing(task, (one.path for one in left))
    saved = list(left)
    bad = _find_failed_paths(task, saved, resumed, gone_bad)
    return find_existing(task, [one.path for one in saved if one.path not in bad] or [one.path for one in saved])


def find_existing(task: Task, candidates: Iterable[str]) -> str | None:
    """Return the first of `candidates` that the backend finds; None if none of the first MAX_CHECKPOINTS_CHECKED
    exists."""
    backend, job = get_backend(task.cluster), JobSpec.from_json(task.spec)
    for path in islice(candidates, MAX_CHECKPOINTS_CHECKED):
        found = backend.problems(replace(job, resume_from=path))
        if not any(problem.field == "resumeFrom" for problem in found) or checkpoint_nodes.find_nodes_apart(
            backend, path
        ):
            return path
    return None


def find_resume_point(task: Task) -> ResumePoint | None:
    """Return where the task would resume; None if nothing of it was trained, it needs no more training, or its engine
    cannot be asked."""
    if task.kind != TaskKind.TRAINING or not task.attempt or task.state == TaskState.SUCCEEDED:
        return None
    reached = task.progress.get("step")
    try:
        path = find_newest_checkpoint(task)
    except (BackendError, UnknownNameError):
        return None
    row = Checkpoint.objects.filter(task=task, path=path).first() if path else None
    knows_how = _knows_how_to_resume(task, row)
    seconds = None if knows_how else _compute_trained_seconds(task)
    if row is None:
        return ResumePoint(reached=reached, knows_how=knows_how, seconds=seconds)
    return ResumePoint(row.path, row.step, row.at, row.attempt, reached, knows_how, seconds)


def _compute_trained_seconds(task: Task) -> float | None:
    """Return how long the newest attempt has run; None if it has not begun."""
    newest = task.attempts.order_by("-number").first()
    if newest is None or newest.running_at is None:
        return None
    return ((newest.ended_at or now()) - newest.running_at).total_seconds()


def _knows_how_to_resume(task: Task, row: Checkpoint | None) -> bool:
    """Return True if the script takes a checkpoint: a recipe's trainer does, one that announces its checkpoints is
    written for it, and a rule or a placeholder hands one over."""
    entry = JobSpec.from_json(task.spec).entrypoint
    if entry is None or entry.resume or (row and row.source == CheckpointSource.SCRIPT):
        return True
    return any("{resume_" in text for text in (*entry.args, *entry.command, *task.spec.get("env", {}).values()))


def count_lost_steps(task: Task, resume_from: str) -> int:
    """Return the number of steps that an attempt trains again because it resumes where the task began, without any
    checkpoint of the task; otherwise 0."""
    if resume_from != task.spec["resume_from"] or any(_list_saved(task)):
        return 0
    return int(task.progress.get("step") or 0)


def list_diverged_attempts(task: Task) -> list[DivergedAttempt]:
    """Return the attempts whose loss has certainly gone bad and not recovered, oldest first. Empty if the task only
    reports a bad loss."""
    if task.spec.get("on_bad_loss", "report") == "report":
        return []
    rows = Finding.objects.filter(task=task, code__in=loss_anomalies.CODES, level=Level.FAIL, until=None).order_by(
        "attempt"
    )
    return [DivergedAttempt(row.attempt, row.params["step"], row.params["good"]) for row in rows]


def _choose_before_divergence(
    task: Task, saved: list[SavedCheckpoint], gone_bad: list[DivergedAttempt]
) -> tuple[str, list[str]]:
    """Return the path to resume from after a bad loss, and the skipped checkpoints. It is always a path, because what
    `auto` finds may be bad; without an earlier checkpoint it is where the task began."""
    left_out = find_diverged_checkpoints(gone_bad, saved)
    left = [one for one in saved if one.path not in left_out]
    bad = left_out | _find_failed_paths(task, left, _list_failed_resumes(task, gone_bad), gone_bad)
    found = find_existing(task, [one.path for one in left if one.path not in bad])
    if found is None:
        asked = task.spec["resume_from"]
        return ("" if asked == AUTO else asked), [one.path for one in saved]
    newer = saved[: next(index for index, one in enumerate(saved) if one.path == found)]
    return found, [one.path for one in newer if one.path in bad]


def _list_saved(task: Task) -> Iterator[SavedCheckpoint]:
    """Yield the task's checkpoints, newest first, without those that the script claims in other tasks' folders. Beyond
    the first MAX_CHECKPOINTS_CHECKED, rows are read only when they are consumed."""
    everything = (
        Checkpoint.objects.filter(task=task, is_complete=True)
        .order_by("-step", "-id")
        .values_list("path", "attempt", "step")
    )
    rows = everything.exclude(source=CheckpointSource.RUNNER, layout__in=WEIGHT_LAYOUTS)
    newest = list(rows[:MAX_CHECKPOINTS_CHECKED])
    if not newest:  # weights alone only where nothing else was saved
        rows = everything
        newest = list(rows[:MAX_CHECKPOINTS_CHECKED])
    is_own = checkpoints.make_claim_check(task.pk)
    others = rows[MAX_CHECKPOINTS_CHECKED:] if len(newest) == MAX_CHECKPOINTS_CHECKED else ()
    return (SavedCheckpoint(*row) for row in chain(newest, others) if is_own(row[0]))


def _list_failed_resumes(task: Task, gone_bad: Iterable[DivergedAttempt]) -> list[Attempt]:
    """Return the attempts that resumed and failed."""
    at_once = {one.attempt for one in gone_bad if one.good is None}
    return [
        one
        for one in task.attempts.all()
        if one.resume_from
        and (one.outcome in RANK_CODES or (one.outcome == TaskReason.BAD_LOSS and one.number in at_once))
    ]


def _find_failed_paths(
    task: Task, saved: list[SavedCheckpoint], resumed: list[Attempt], gone_bad: Iterable[DivergedAttempt] = ()
) -> frozenset[str]:
    """Return the paths that `resumed` attempts tried in vain."""
    if not resumed:
        return frozenset()
    at_once = {one.attempt for one in gone_bad if one.good is None}
    numbers = [one.number for one in resumed]
    stepped = set(task.metrics.filter(attempt__in=numbers).values_list("attempt", flat=True).distinct())
    stepped = (stepped - at_once) | {one.attempt for one in saved}
    said = _read_announced_paths(task, numbers)
    return find_failed_checkpoints([_build_resume_attempt(one, said, stepped) for one in resumed], saved)


def _read_announced_paths(task: Task, numbers: list[int]) -> Mapping[int, str]:
    """Return the path that each attempt's script reported to have loaded, by attempt number."""
    rows = Event.objects.filter(task=task, attempt__in=numbers, code="SCRIPT_RESUMED").values_list("attempt", "params")
    return {
        attempt: checkpoints.resolve_announced_path(task.cluster, task.pk, str(params.get("path", "")))
        for attempt, params in rows
    }


def _build_resume_attempt(attempt: Attempt, said: Mapping[int, str], stepped: set[int]) -> ResumeAttempt:
    return ResumeAttempt(
        attempt.number, attempt.resume_from, said.get(attempt.number, ""), attempt.number not in stepped
    )
