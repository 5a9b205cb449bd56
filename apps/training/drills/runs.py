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
from apps.training.core.engine_access import build_handle, get_backend
from apps.training.models import Attempt, Drill, Event, Task
from apps.training.states import ACTIVE_STATES, FINAL_STATES, TaskKind, TaskState
from apps.training.states.deadlines import RECONCILE_INTERVALS
from apps.training.states.reasons import TaskReason
from fermi.jobs import drill as drills
from fermi.jobs.causes import RANK_CODES
from fermi.jobs.drill import CheckpointSaved, DrillEnd, RankKilled, ResumedAttempt
from fermi.jobs.errors import BackendError
from fermi.jobs.ranks import place_nodes
from fermi.jobs.spec import Cause, JobSpec
from fermi.jobs.user_paths import CHECKPOINTS_FOLDER, OUTPUTS_FOLDER, TREES_FOLDER

KILLED_EVENT = "SCRIPT_DRILLED"


def start_drill(
    user: User, cluster: Cluster, job: JobSpec, *, name: str, task: Task | None = None, stage: bool = False, **own: Any
) -> Drill:
    """Store a drill of `job` and wake the reconciler for it. `own`: further columns of its run."""
    key = new_id(drills.DRILL)
    job = drills.build_drill_job(job, key, str(settings.DATA_DIR / CHECKPOINTS_FOLDER / key))
    job = replace(job, output_dir=str(settings.DATA_DIR / OUTPUTS_FOLDER / key))
    with transaction.atomic():
        own = {"request": {}, "trace": trace_context.build_child_trace(task if stage else None), **own}
        run = task_store.store_task(job, user, cluster, TaskKind.DRILL, name=name, **own)
        drill = Drill.objects.create(run=run, task=task, stage=stage)
        if task:
            transitions.record_event(task.pk, task.attempt, "drill", "DRILL_BEGAN", {"drill": key})
    return drill


def start_drill_of_task(user: User, task: Task, *, minutes: float | None = None, stage: bool = False) -> Drill:
    """Start a drill of the task as it was requested."""
    job = JobSpec.from_json(task.spec)
    job = replace(job, drill_minutes=minutes or job.drill_minutes)
    return start_drill(
        user, task.cluster, job, name=task.name, task=task, stage=stage, dataset_version=task.dataset_version,
        model=task.model, priority=task.priority,
    )  # fmt: skip


def run_stage(task: Task) -> timedelta | None:
    """Run the drill before the first attempt of a task that requested one: return None if the attempt may start, else
    how long to wait."""
    if task.attempt or task.kind != TaskKind.TRAINING or task.spec.get("drill", "off") == "off":
        return None
    drill = Drill.objects.filter(task=task, stage=True).select_related("run").first()
    if drill is None:
        try:
            drill = start_drill_of_task(task.owner, task, stage=True)
        except IntegrityError as error:  # another pass made it at the same time
            raise transitions.StaleTaskError(task.pk) from error
    run = drill.run
    if TaskState(run.state) not in FINAL_STATES:
        waits = run.state == TaskState.QUEUED and run.reason
        reason, params = (run.reason, run.reason_params) if waits else (TaskReason.DRILL_RUNNING, {"drill": run.pk})
        transitions.explain_wait(task, reason, params)
        return RECONCILE_INTERVALS[TaskState.QUEUED]
    verdict = drill.report.get("verdict") or {"level": drills.FAIL, "code": run.reason, "params": run.reason_params}
    if verdict["level"] == drills.PASS:
        return None
    params = {**verdict["params"], "drill": drill.pk, "cause": verdict["code"]}
    transitions.change_state(task, TaskState.FAILED, TaskReason.DRILL_FAILED, params)
    return timedelta()


def prepare_job(task: Task, job: JobSpec) -> JobSpec:
    """Return the job of the next attempt; only one rank is killed per drill."""
    return replace(job, rehearses=False) if job.rehearses and _find_killed_attempt(task) else job


def find_end_cause(run: Task, attempt: Attempt) -> Cause | None:
    """Return why the running attempt has to end: it has shown what it had to show, or taken too long; None if it goes
    on."""
    since = attempt.running_at or attempt.created_at
    job = JobSpec.from_json(run.spec)
    late, about = now() > since + timedelta(minutes=job.drill_minutes), {"minutes": f"{job.drill_minutes:g}"}
    number = _find_killed_attempt(run)
    if number is None or number >= attempt.number:
        return Cause(TaskReason.DRILL_NO_CHECKPOINT, about) if late and number is None else None
    resumed = _build_resumed(run, attempt)
    if resumed.advanced or (resumed.first is None and _makes_steps(run, attempt)):
        return Cause(TaskReason.COMPLETED)
    killed = _build_killed(run, job) if late else None
    return Cause(TaskReason.DRILL_NO_STEP, {**killed.about, **about}) if killed else None


def is_last_attempt(run: Task, attempt: Attempt) -> bool:
    """Return True after an attempt that failed by itself: another one would show nothing new."""
    return attempt.outcome in RANK_CODES and _find_killed_attempt(run) != attempt.number


def _find_killed_attempt(run: Task) -> int | None:
    return Event.objects.filter(task=run, code=KILLED_EVENT).order_by("pk").values_list("attempt", flat=True).first()


def _makes_steps(run: Task, attempt: Attempt) -> bool:
    """Return True if the probe sees rank 0 make steps, although its script prints none."""
    try:
        seen = get_backend(run.cluster).pulses(build_handle(run, attempt.number)).get(0)
    except BackendError:
        return False
    return bool(seen and seen.step)


def _summarize_steps(run: Task, number: int) -> dict[str, Any]:
    points = run.metrics.filter(attempt=number, rank=0)
    return points.aggregate(first=Min("step"), last=Max("step"), count=Count("step", distinct=True))


def _build_resumed(run: Task, attempt: Attempt) -> ResumedAttempt:
    event = Event.objects.filter(task=run, attempt=attempt.number, code="SCRIPT_RESUMED").order_by("pk").first()
    said = event.params.get("step") if event else None
    found = ResumedAttempt(
        began_at=attempt.running_at.timestamp() if attempt.running_at else None,
        reported_step=said if isinstance(said, int) and not isinstance(said, bool) and said >= 0 else None,
        resume_from=attempt.resume_from,
        **_summarize_steps(run, attempt.number),
    )
    beyond = run.metrics.filter(attempt=attempt.number, rank=0, step__gt=found.step or 0).order_by("at").first()
    return replace(found, stepped_at=beyond.at.timestamp() if beyond else None)


def _build_killed(run: Task, job: JobSpec) -> RankKilled | None:
    event = Event.objects.filter(task=run, code=KILLED_EVENT).order_by("pk").first()
    if event is None:
        return None
    rank = event.params["rank"]
    node = next((at.node.name for at in place_nodes(job.nodes, job.master) if rank in at.ranks), "")
    saved = run.checkpoints.filter(attempt=event.attempt).order_by("-step").first()
    printed = _summarize_steps(run, event.attempt)
    return RankKilled(
        rank, node, event.at.timestamp(), CheckpointSaved(str(event.params["path"]), event.params.get("size_bytes")),
        CheckpointSaved(saved.path, saved.size_bytes, saved.step) if saved else None, printed["first"], printed["last"],
    )  # fmt: skip


def judge_drill(run: Task) -> dict[str, Any]:
    """Return the verdict on a run that has ended."""
    job = JobSpec.from_json(run.spec)
    killed, number = _build_killed(run, job), _find_killed_attempt(run)
    after = run.attempts.filter(number__gt=number).order_by("-number").first() if number is not None else None
    ending = DrillEnd(run.state, run.reason, run.reason_params)
    return drills.build_report(killed, _build_resumed(run, after) if after else None, ending, job.drill_minutes)


def finish_drill(run: Task) -> None:
    """Store the report in the transaction that ends the run, wake the task whose restart was rehearsed, and delete the
    drill's files."""
    drill, found = Drill.objects.select_related("task").get(run=run), judge_drill(run)
    Drill.objects.filter(run=run).update(report=found)
    verdict = found["verdict"]
    if task := drill.task:
        transitions.record_event(
            task.pk, task.attempt, "drill", verdict["code"], {**verdict["params"], "drill": run.pk}
        )
        wakeups.enqueue_task(task.pk)
    for folder in (run.spec["checkpoint_dir"], run.spec.get("output_dir"), settings.DATA_DIR / TREES_FOLDER / run.pk):
        if folder:
            transaction.on_commit(partial(shutil.rmtree, folder, ignore_errors=True))


def stop_with_task(task: Task) -> None:
    """Stop the drill before a task that ends without an attempt, in the transaction that ends it."""
    runs = Task.objects.filter(drill__task=task, drill__stage=True, state__in=ACTIVE_STATES, stop_requested_at=None)
    for run in list(runs.values_list("pk", flat=True)):
        Task.objects.filter(pk=run).update(stop_requested_at=now())
        wakeups.enqueue_task(run)
