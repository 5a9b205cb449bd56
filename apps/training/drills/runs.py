"""Runs drills. Each is run by a task of the kind `drill`: the same job with its own checkpoints, so that it takes
leases, waits, restarts and ends as training does. This module has what is its own: how one starts, when it is over,
what it showed, and its place before a task.

    attempt 1 ─▶ a checkpoint appears ─▶ its runner kills a rank ─▶ attempt 2 ─▶ a step beyond the resumed one: over
"""

import shutil
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Count, Max, Min

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.common.clock import now
from apps.common.ids import new_id
from apps.training.core import task_store, trace_context, transitions, wakeups
from apps.training.core.engine_access import backend_for, handle_for
from apps.training.models import Attempt, Drill, Event, Task
from apps.training.states import ACTIVE, FINAL, Kind, State
from apps.training.states.limits import LOOK_AGAIN
from apps.training.states.reasons import Reason
from fermi.jobs import drill as drills
from fermi.jobs.causes import BY_RANKS
from fermi.jobs.drill import Ending, Killed, Resumed, Saved
from fermi.jobs.errors import BackendError
from fermi.jobs.ranks import place
from fermi.jobs.spec import Cause, JobSpec
from fermi.jobs.user_paths import CHECKPOINTS, OUTPUTS, TREES

KILLED = "SCRIPT_DRILLED"


def begin(
    user: User, cluster: Cluster, job: JobSpec, *, name: str, task: Task | None = None, stage: bool = False, **own: Any
) -> Drill:
    """Store a drill of `job` and wake the reconciler for it. `own`: further columns of its run."""
    key = new_id(drills.DRILL)
    job = drills.rehearsal(job, key, str(settings.DATA_DIR / CHECKPOINTS / key))
    job = replace(job, output_dir=str(settings.DATA_DIR / OUTPUTS / key))
    with transaction.atomic():
        own = {"request": {}, "trace": trace_context.within(task if stage else None), **own}
        run = task_store.store(job, user, cluster, Kind.DRILL, name=name, **own)
        drill = Drill.objects.create(run=run, task=task, stage=stage)
        if task:
            transitions.record(task.pk, task.attempt, "drill", "DRILL_BEGAN", {"drill": key})
    return drill


def of_task(user: User, task: Task, *, minutes: float | None = None, stage: bool = False) -> Drill:
    """Start a drill of the task as it was requested."""
    job = JobSpec.from_json(task.spec)
    job = replace(job, drill_minutes=minutes or job.drill_minutes)
    return begin(
        user, task.cluster, job, name=task.name, task=task, stage=stage, dataset_version=task.dataset_version,
        model=task.model, priority=task.priority,
    )  # fmt: skip


def stage(task: Task) -> timedelta | None:
    """Run the drill before the first attempt of a task that requested one: return None if the attempt may start, else
    how long to wait."""
    if task.attempt or task.kind != Kind.TRAINING or task.spec.get("drill", "off") == "off":
        return None
    drill = Drill.objects.filter(task=task, stage=True).select_related("run").first()
    if drill is None:
        try:
            drill = of_task(task.owner, task, stage=True)
        except IntegrityError as error:  # another pass made it at the same time
            raise transitions.Stale(task.pk) from error
    run = drill.run
    if State(run.state) not in FINAL:
        waits = run.state == State.QUEUED and run.reason
        reason, params = (run.reason, run.reason_params) if waits else (Reason.DRILL_RUNNING, {"drill": run.pk})
        transitions.explain(task, reason, params)
        return LOOK_AGAIN[State.QUEUED]
    verdict = drill.report.get("verdict") or {"level": drills.FAIL, "code": run.reason, "params": run.reason_params}
    if verdict["level"] == drills.PASS:
        return None
    params = {**verdict["params"], "drill": drill.pk, "cause": verdict["code"]}
    transitions.move(task, State.FAILED, Reason.DRILL_FAILED, params)
    return timedelta()


def rehearsed(task: Task, job: JobSpec) -> JobSpec:
    """Return the job of the next attempt; only one rank is killed per drill."""
    return replace(job, rehearses=False) if job.rehearses and _killed_in(task) else job


def found(run: Task, attempt: Attempt) -> Cause | None:
    """Return why the running attempt has to end: it has shown what it had to show, or taken too long; None if it goes
    on."""
    since = attempt.running_at or attempt.created_at
    job = JobSpec.from_json(run.spec)
    late, about = now() > since + timedelta(minutes=job.drill_minutes), {"minutes": f"{job.drill_minutes:g}"}
    number = _killed_in(run)
    if number is None or number >= attempt.number:
        return Cause(Reason.DRILL_NO_CHECKPOINT, about) if late and number is None else None
    resumed = _resumed(run, attempt)
    if resumed.advanced or (resumed.first is None and _steps(run, attempt)):
        return Cause(Reason.COMPLETED)
    killed = _killed(run, job) if late else None
    return Cause(Reason.DRILL_NO_STEP, {**killed.about, **about}) if killed else None


def is_last(run: Task, attempt: Attempt) -> bool:
    """Return True after an attempt that failed by itself: another one would show nothing new."""
    return attempt.outcome in BY_RANKS and _killed_in(run) != attempt.number


def _killed_in(run: Task) -> int | None:
    return Event.objects.filter(task=run, code=KILLED).order_by("pk").values_list("attempt", flat=True).first()


def _steps(run: Task, attempt: Attempt) -> bool:
    """Return True if the probe sees rank 0 make steps, although its script prints none."""
    try:
        seen = backend_for(run.cluster).pulses(handle_for(run, attempt.number)).get(0)
    except BackendError:
        return False
    return bool(seen and seen.step)


def _printed(run: Task, number: int) -> dict[str, Any]:
    points = run.metrics.filter(attempt=number, rank=0)
    return points.aggregate(first=Min("step"), last=Max("step"), count=Count("step", distinct=True))


def _resumed(run: Task, attempt: Attempt) -> Resumed:
    event = Event.objects.filter(task=run, attempt=attempt.number, code="SCRIPT_RESUMED").order_by("pk").first()
    said = event.params.get("step") if event else None
    found = Resumed(
        began_at=attempt.running_at.timestamp() if attempt.running_at else None,
        said=said if isinstance(said, int) and not isinstance(said, bool) and said >= 0 else None,
        told=attempt.resume_from,
        **_printed(run, attempt.number),
    )
    beyond = run.metrics.filter(attempt=attempt.number, rank=0, step__gt=found.step or 0).order_by("at").first()
    return replace(found, stepped_at=beyond.at.timestamp() if beyond else None)


def _killed(run: Task, job: JobSpec) -> Killed | None:
    event = Event.objects.filter(task=run, code=KILLED).order_by("pk").first()
    if event is None:
        return None
    rank = event.params["rank"]
    node = next((at.node.name for at in place(job.nodes, job.master) if rank in at.ranks), "")
    saved = run.checkpoints.filter(attempt=event.attempt).order_by("-step").first()
    printed = _printed(run, event.attempt)
    return Killed(
        rank, node, event.at.timestamp(), Saved(str(event.params["path"]), event.params.get("size_bytes")),
        Saved(saved.path, saved.size_bytes, saved.step) if saved else None, printed["first"], printed["last"],
    )  # fmt: skip


def report(run: Task) -> dict[str, Any]:
    """Return the verdict on a run that has ended."""
    job = JobSpec.from_json(run.spec)
    killed, number = _killed(run, job), _killed_in(run)
    after = run.attempts.filter(number__gt=number).order_by("-number").first() if number is not None else None
    ending = Ending(run.state, run.reason, run.reason_params)
    return drills.judge(killed, _resumed(run, after) if after else None, ending, job.drill_minutes)


def finish(run: Task) -> None:
    """Store the report in the transaction that ends the run, wake the task whose restart was rehearsed, and delete the
    drill's files."""
    drill, found = Drill.objects.select_related("task").get(run=run), report(run)
    Drill.objects.filter(run=run).update(report=found)
    verdict = found["verdict"]
    if task := drill.task:
        transitions.record(task.pk, task.attempt, "drill", verdict["code"], {**verdict["params"], "drill": run.pk})
        wakeups.poke(task.pk)
    for folder in (run.spec["checkpoint_dir"], run.spec.get("output_dir"), settings.DATA_DIR / TREES / run.pk):
        if folder:
            transaction.on_commit(partial(shutil.rmtree, folder, ignore_errors=True))


def end_with(task: Task) -> None:
    """Stop the drill before a task that ends without an attempt, in the transaction that ends it."""
    runs = Task.objects.filter(drill__task=task, drill__stage=True, state__in=ACTIVE, stop_requested_at=None)
    for run in list(runs.values_list("pk", flat=True)):
        Task.objects.filter(pk=run).update(stop_requested_at=now())
        wakeups.poke(run)
