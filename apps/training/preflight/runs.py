"""Runs pre-flight tests. Each is run by a task of the kind `preflight`, so that it takes leases, waits, survives kills
and ends as training does; this module has what is its own: how one starts, what it found, and its place before a task.

    task queued ─▶ its test is created and runs ─┬─▶ fit: the first attempt starts     (warnings become its events)
                                                 └─▶ not fit, or cannot run: the task fails, with the culprit's reason
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.common.clock import now
from apps.common.ids import new_id
from apps.training.core import task_store, trace_context, transitions, wakeups
from apps.training.core.engine_access import build_handle, get_backend, resolve_run_locations
from apps.training.models import Preflight, Task
from apps.training.states import ACTIVE_STATES, FINAL_STATES, TaskKind, TaskState
from apps.training.states.deadlines import RECONCILE_INTERVALS
from apps.training.states.reasons import TaskReason
from fermi.jobs.code import OFF
from fermi.jobs.run_location import LOCATIONS_KEPT
from fermi.jobs.spec import JobSpec
from fermi.jobs.user_paths import CHECKPOINTS_FOLDER
from fermi.preflight import PREFLIGHT, verdict
from fermi.runner.record_frames import strip_frames

MAX_OUTPUT_BYTES = 8 << 20
"""Most bytes of a node's output that are parsed."""


def start_test(user: User, cluster: Cluster, job: JobSpec, level: str, before: Task | None = None) -> Preflight:
    """Store a test of `job`'s nodes and wake the reconciler for it. A test before a task runs where the task's ranks
    will: inside of its environments or beside them, as `job` says."""
    key = new_id(PREFLIGHT)
    options = {"level": level, "framework": job.framework, "patience": settings.PREFLIGHT_PATIENCE}
    if before:
        options[LOCATIONS_KEPT] = True
    job = replace(
        job, task_id=key, framework=PREFLIGHT, options=options,
        entrypoint=None, hyperparameters={}, strategy={}, train_data="", valid_data="", resume_from="",
        checkpoint_dir=str(settings.DATA_DIR / CHECKPOINTS_FOLDER / key), grace_seconds=5.0,
        max_restarts=0, spares=(), preflight="off", elastic=None,
        code=replace(job.code, requirements=OFF) if job.code and job.code.snapshot else None,
        output_dir="", files_dir="", files_url="", after=(), after_checkpoint="", after_outputs="",
    )  # fmt: skip
    with transaction.atomic():
        name = before.name if before else PREFLIGHT
        own: dict[str, Any] = {
            "name": name,
            "request": {"level": level},
            "trace": trace_context.build_child_trace(before),
        }
        run = task_store.store_task(job, user, cluster, TaskKind.PREFLIGHT, **own)
        test = Preflight.objects.create(run=run, before=before, level=level)
        if before:
            transitions.record_event(before.pk, 0, "preflight", "PREFLIGHT_BEGAN", {"preflight": key, "level": level})
    return test


def run_stage(task: Task) -> timedelta | None:
    """Run the test before the first attempt of a task that requested one: return None if the attempt may start, else
    how long to wait."""
    job = JobSpec.from_json(task.spec)
    if job.preflight == "off" or task.attempt:
        return None
    test = Preflight.objects.filter(before=task).select_related("run").first()
    if test is None:
        try:
            test = start_test(
                task.owner, task.cluster, resolve_run_locations(task.cluster, job)[0], job.preflight, before=task
            )
        except IntegrityError as error:  # another pass made it at the same time
            raise transitions.StaleTaskError(task.pk) from error
    run = test.run
    if TaskState(run.state) not in FINAL_STATES:
        waits = run.state == TaskState.QUEUED and run.reason
        reason, params = (
            (run.reason, run.reason_params) if waits else (TaskReason.PREFLIGHT_RUNNING, {"preflight": run.pk})
        )
        transitions.explain_wait(task, reason, params)
        return RECONCILE_INTERVALS[TaskState.QUEUED]
    if run.state == TaskState.SUCCEEDED and test.report["verdict"]["level"] != "fail":
        return None
    transitions.change_state(task, TaskState.FAILED, TaskReason.PREFLIGHT_FAILED, _build_failure_params(test))
    return timedelta()


def _build_failure_params(test: Preflight) -> dict[str, Any]:
    """Return the first culprit's reason; the run's own if it could not test anything."""
    found = [culprit for culprit in _list_culprits(test.report) if culprit["level"] == "fail"]
    first = found[0] if found else {"code": test.run.reason, "params": test.run.reason_params}
    return {**first["params"], "preflight": test.pk, "cause": first["code"], "more": len(found[1:])}


def _list_culprits(report: dict[str, Any]) -> list[dict[str, Any]]:
    return report["verdict"]["culprits"] if report else []


def judge_output(run: Task, attempt: int) -> dict[str, Any]:
    """Return the verdict on the attempt's output."""
    job = JobSpec.from_json(run.spec)
    return verdict.build_report(
        verdict.list_members(job), _read_facts(run, attempt), job.options["level"], job.options["framework"]
    )


def _read_facts(run: Task, attempt: int) -> Iterator[dict[str, Any]]:
    backend, handle = get_backend(run.cluster), build_handle(run, attempt)
    for rank in range(run.world_size):
        yield from verdict.parse_facts(strip_frames(backend.logs(handle, rank, 0, MAX_OUTPUT_BYTES).data))


def finish_test(run: Task, found: dict[str, Any]) -> None:
    """Store the report in the transaction that ends the run, wake the task that waits for it, and delete the folder
    whose disk was tested."""
    test = Preflight.objects.select_related("before").get(run=run)
    Preflight.objects.filter(run=run).update(report=found)
    folder = settings.DATA_DIR / CHECKPOINTS_FOLDER / run.pk
    transaction.on_commit(partial(shutil.rmtree, folder, ignore_errors=True))
    if task := test.before:
        for culprit in _list_culprits(found):
            transitions.record_event(task.pk, 0, "preflight", culprit["code"], culprit["params"])
        code = "PREFLIGHT_FIT" if found["verdict"]["level"] != "fail" else "PREFLIGHT_NOT_FIT"
        transitions.record_event(task.pk, 0, "preflight", code, {"preflight": run.pk})
        wakeups.enqueue_task(task.pk)


def stop_with_task(task: Task) -> None:
    """Stop the test before a task that ends without an attempt, in the transaction that ends it. If the ended task is a
    test itself, wake the task that waits for it."""
    runs = Task.objects.filter(preflight__before=task, state__in=ACTIVE_STATES, stop_requested_at=None)
    for run in list(runs.values_list("pk", flat=True)):
        Task.objects.filter(pk=run).update(stop_requested_at=now())
        wakeups.enqueue_task(run)
    waiting = Preflight.objects.filter(run=task).values_list("before", flat=True).first()
    if waiting:
        wakeups.enqueue_task(waiting)
