"""Carries out what `states.decisions` decided, one function per `ReconcileAction`.

Each function is idempotent, calls the engine outside of transactions, and returns how long to wait until the task is
processed again; None to go on at once.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from apps.accounts import secrets
from apps.clusters import leases
from apps.code import store
from apps.common.clock import now
from apps.environments import memory
from apps.environments.session import describe_error
from apps.training.core import (
    checkpoint_choice,
    code,
    elastic_size,
    observation_store,
    outcomes,
    placement,
    release,
    task_environments,
    transitions,
    wakeups,
)
from apps.training.core.engine_access import (
    build_attempt_job,
    build_cause,
    build_handle,
    find_declared_cause,
    get_backend,
    reveal_secrets,
)
from apps.training.core.findings import record_uncollected_files
from apps.training.drills import runs as drills
from apps.training.logs import ingest
from apps.training.models import Attempt, Task
from apps.training.preflight import runs
from apps.training.queue import entry
from apps.training.queue.limits import OverLimitError
from apps.training.reconcile import crash_analysis, diagnosis, ports, predecessors, prerequisites, restarts
from apps.training.states import FINAL_STATES, TaskKind, TaskState
from apps.training.states.deadlines import (
    DEADLINES,
    FAILURE_GRACE_SECONDS,
    FAILURE_IDLE_SECONDS,
    OVER_LIMIT_RETRY_INTERVAL,
    PREDECESSOR_INTERVAL,
    RECONCILE_INTERVALS,
)
from apps.training.states.decisions import ReconcileDecision
from apps.training.states.reasons import YIELDING_OUTCOMES, TaskReason
from fermi.diagnosis.collective_groups import format_names
from fermi.jobs import run_location
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Cause, JobSpec, Observation, Phase, Rendered
from fermi.metrics.trainer_steps import TrainerPosition
from fermi.planning import plugins
from fermi.runner.run_names import build_run_name


def prepare_task(task: Task) -> timedelta | None:
    """Check what the task needs before it is queued, all side by side; fail it at once if one of them cannot be had,
    else move it to queued when all are ready."""
    needs = prerequisites.list_prerequisites(task)
    if failed := next((need.failed for need in needs if need.failed), None):
        with transitions.lock_task(task):
            transitions.change_state(task, TaskState.FAILED, failed.code, failed.params)
            _release_if_final(task)
        return timedelta()
    if waits := next((need.waits for need in needs if need.waits), None):
        transitions.explain_wait(task, waits.code, waits.params)
        return RECONCILE_INTERVALS[TaskState.INITIALIZING]
    spec = dict(task.spec)
    for need in needs:
        spec |= need.spec_values
    transitions.change_state(task, TaskState.QUEUED, spec=spec)
    return None


def lease_environments(task: Task) -> timedelta | None:
    """Start the next attempt on its own port once the task holds all its environments; until then it stands in the
    queue.

    If an environment was lost, a spare takes its place, an elastic task goes on without it, and a task that requested
    capacity queues for other environments; one that is back takes part again. Never before the back-off is over, not
    even after a hint.
    """
    if task.paused_at or task.preempted_at:
        return entry.suspend_task(task)
    if task.spec.get("after") and not task.attempt and (waits := _await_predecessors(task)) is not None:
        return waits
    if (begins := restarts.compute_start_time(task.attempts.all())) and begins > (moment := now()):
        return begins - moment
    if full := restarts.find_full_disk(task.attempts.all()):
        transitions.explain_wait(task, *full)
        return RECONCILE_INTERVALS[TaskState.QUEUED]
    if (remaining := restarts.compute_remaining_time(task)) is not None and remaining <= timedelta():
        with transitions.lock_task(task):
            transitions.change_state(task, TaskState.FAILED, TaskReason.RUN_TIMEOUT)
            _release_if_final(task)
        return timedelta()
    job = JobSpec.from_json(task.spec)
    is_given = not task.attempt and bool(leases.list_held_environments(task.pk))
    if placement.replace_lost_nodes(task) or (not is_given and elastic_size.resize_task(task)):
        return None
    if lost := placement.describe_first_unusable(job):
        if task.select and entry.is_scheduled_by_platform(task):
            return entry.enter_queue(task, job)
        return _leave_queue(task, TaskReason.ENVIRONMENT_UNAVAILABLE, lost)
    if job.when_in_use == "wait" and not task.attempt:
        using = memory.find_memory_in_use(node.id for node in job.nodes)
        if using.environments:
            return _leave_queue(
                task, TaskReason.ENVIRONMENTS_IN_USE, {"environments": memory.describe_holders(using.environments)}
            )
        if using.looking:
            return _leave_queue(task, TaskReason.MEMORY_LOOKED_AT, {})
    try:
        reveal_secrets(task)
    except secrets.SecretUnavailableError as absent:
        return _leave_queue(task, absent.code, absent.params)
    entry.update_run_location(task, job)
    if not entry.has_turn(task, job):
        wait = entry.enter_queue(task, job)
        if wait is not None or task.select:  # what was chosen for it is yet to be loaded
            return wait
    for stage in (runs.run_stage, drills.run_stage):
        if (wait := stage(task)) is not None:
            return wait
    try:
        code.build_archive(job)
    except (store.ContentMissingError, OSError) as lost_code:
        return _leave_queue(task, TaskReason.CODE_LOST, {"why": str(lost_code)})
    backend = get_backend(task.cluster)
    there = ports.find_ports(task, backend)
    settled, _ = run_location.choose_run_locations(
        job, backend.find_run_locations(job)
    )  # a spare may have taken a place, GPUs may be free now
    number, (resume_from, in_vain) = task.attempt + 1, checkpoint_choice.choose_resume_path(task)
    try:
        with transitions.lock_task(task):
            held = entry.acquire_environments(task, job)
            if not held:
                port = there.lease_port(build_run_name(task.pk, number))
                attempt = Attempt(
                    task=task, number=number, master_port=port, resume_from=resume_from, created_at=now(), plan={}
                )
                launched = drills.prepare_job(task, build_attempt_job(task, settled, attempt, remaining))
                plan = plugins.get_planner(task.framework).plan(launched)
                attempt.plan = backend.render(launched, plan).to_json()
                attempt.save(force_insert=True)
                spec = task.spec if settled == job else {**task.spec, "nodes": settled.to_json()["nodes"]}
                transitions.change_state(task, TaskState.STARTING, attempt=number, resize_requested_at=None, spec=spec)
                params = {"number": number, "port": port, "resumeFrom": resume_from}
                transitions.record_event(task.pk, number, "attempt", "ATTEMPT_BEGAN", params)
                if there.busy:
                    transitions.record_event(
                        task.pk, number, "attempt", "MASTER_PORT_BUSY", {**there.busy, "instead": port}
                    )
                if back := diagnosis.describe_step_back(task, resume_from, in_vain):
                    transitions.record_event(task.pk, number, "attempt", *back)
                elif again := checkpoint_choice.count_lost_steps(task, resume_from):
                    transitions.record_event(task.pk, number, "attempt", "RESUMED_WITHOUT_CHECKPOINT", {"lost": again})
    except OverLimitError as over:
        _leave_queue(task, over.problem.code, over.problem.params)
        return OVER_LIMIT_RETRY_INTERVAL
    except leases.NoFreePortError:
        if there.candidates:  # other attempts leased them first: try again
            return timedelta()
        return _leave_queue(task, TaskReason.PORTS_TAKEN, there.explained())
    if held:  # another task took one outside of the queue: queue again
        return entry.enter_queue(task, job)
    return None


def _await_predecessors(task: Task) -> timedelta | None:
    """End the task if a task that it came after has ended in another way than it needs; store why it waits while one
    has not ended, and without a deadline. Return None once it may start, with what it was given of them in its spec."""
    verdict = predecessors.judge_predecessors(task)
    if verdict.ends:
        with transitions.lock_task(task):
            transitions.change_state(task, verdict.to, verdict.ends.code, verdict.ends.params)
            _release_if_final(task)
        return timedelta()
    if verdict.waits:
        _leave_queue(task, verdict.waits.code, verdict.waits.params)
        if task.deadline_at is not None:
            with transitions.lock_task(task):
                Task.objects.filter(pk=task.pk).update(deadline_at=None)
        return PREDECESSOR_INTERVAL
    if verdict.met:
        with transitions.lock_task(task):
            predecessors.record_met(task, verdict)
        task.refresh_from_db(fields=["spec", "deadline_at"])
    return None


def _leave_queue(task: Task, code: str, params: Mapping[str, Any]) -> timedelta:
    """Take the task out of the queue while it waits for something of its own, so that it blocks no other; store the
    reason."""
    entry.leave_queue(task)
    transitions.explain_wait(task, code, params)
    return RECONCILE_INTERVALS[TaskState.QUEUED]


def submit_attempt(task: Task, attempt: Attempt, decision: ReconcileDecision) -> timedelta | None:
    """Submit the attempt to the engine, and store why it waits there. A permanent error is stored as the attempt's
    outcome."""
    waiting = decision.cause
    try:
        get_backend(task.cluster).submit(Rendered.from_json(attempt.plan), reveal_secrets(task))
    except secrets.SecretUnavailableError as absent:
        _store_outcome(task, attempt, absent.code, absent.params)
        return None
    except BackendError as error:
        if error.permanent and find_declared_cause(task.cluster, error.code):
            _store_outcome(task, attempt, error.code, error.params)
            return None
        if error.permanent:
            _store_outcome(task, attempt, TaskReason.START_FAILED, {"cause": describe_error(error)})
            return None
        waiting = Cause(error.code, error.params)
    else:
        with transitions.lock_task(task):
            Attempt.objects.filter(pk=attempt.pk, submitted_at=None).update(submitted_at=now())
    transitions.explain_wait(task, waiting.code, dict(waiting.params))
    return RECONCILE_INTERVALS[TaskState.STARTING]


def advance_state(task: Task, attempt: Attempt, decision: ReconcileDecision) -> timedelta | None:
    """Change the state while the attempt goes on."""
    assert decision.to is not None
    with transitions.lock_task(task):
        if decision.to is TaskState.RUNNING:
            Attempt.objects.filter(pk=attempt.pk, running_at=None).update(running_at=now())
        transitions.change_state(
            task, decision.to, attempt.outcome, attempt.outcome_params, **_build_deadline(task, decision.to)
        )
    return None


def _build_deadline(task: Task, to: TaskState) -> dict[str, Any]:
    """Return the deadline of a task that limits its own run time; empty for others."""
    remaining = restarts.compute_remaining_time(task) if to is TaskState.RUNNING else None
    return {} if remaining is None else {"deadline_at": now() + max(remaining, timedelta())}


def record_outcome(task: Task, attempt: Attempt, decision: ReconcileDecision) -> timedelta | None:
    """Store the outcome of an attempt whose end is known, with what its ranks and logs explain."""
    params = dict(decision.cause.params)
    if isinstance(ranks := params.get("ranks"), list):
        names = task.nodes.filter(node_rank__in=params["node"]).values_list("name", flat=True)
        params |= {"ranks": format_names(ranks), "node": format_names(list(names))}
    _store_outcome(task, attempt, *crash_analysis.explain_outcome(task, attempt, decision.cause.code, params))
    return None


def cancel_attempt(task: Task, attempt: Attempt, decision: ReconcileDecision) -> timedelta | None:
    """Ask the engine to end what is left of the attempt."""
    asked = build_cause(task.cluster, attempt.outcome).asked
    grace, still = (task.spec["grace_seconds"], None) if asked else (FAILURE_GRACE_SECONDS, FAILURE_IDLE_SECONDS)
    get_backend(task.cluster).cancel(build_handle(task, attempt.number), grace, still)
    if decision.cause.code:
        transitions.explain_wait(task, decision.cause.code, decision.cause.params)
    elif attempt.outcome != TaskReason.COMPLETED:  # the engine could not be asked for a while, and can again
        transitions.explain_wait(task, attempt.outcome, attempt.outcome_params)
    return RECONCILE_INTERVALS[TaskState.STOPPING]


def close_attempt(task: Task, attempt: Attempt, decision: ReconcileDecision) -> timedelta | None:
    """Close an attempt of which nothing is left: read its output to the end, then restart or end the task."""
    assert decision.to is not None
    ranks = attempt.seen.get("ranks", ())
    trainer = TrainerPosition.from_reports(rank.get("trainer") for rank in ranks)
    ingest.drain_logs(task.pk, attempt.number, trainer)
    if trainer:
        ingest.store_step_count(task.pk, attempt.number, trainer.step, trainer.total)
    elif (step := max((rank.get("last_step") or 0 for rank in ranks), default=0)) > 0:
        ingest.store_step_count(task.pk, attempt.number, step)
    with suppress(BackendError):
        record_uncollected_files(task, attempt.number)
    if crash_analysis.update_outcome(task, attempt):
        return None  # the rest of the output may change the decision: decide again
    report = runs.judge_output(task, attempt.number) if task.kind == TaskKind.PREFLIGHT else None
    to = (
        TaskState.FAILED
        if decision.to is TaskState.QUEUED and diagnosis.is_last_attempt(task, attempt)
        else decision.to
    )
    restart = to is TaskState.QUEUED
    gives_way = restart and attempt.outcome in YIELDING_OUTCOMES
    again = restarts.describe_repetition(task.attempts.all(), attempt, crash_analysis.read_last_steps(task, attempt))
    reason, params = attempt.outcome, {**attempt.outcome_params, **again}
    if restart and not gives_way:
        reason, params = TaskReason.RESTARTING, {"cause": attempt.outcome, "next": attempt.number + 1, **params}
    elif to is TaskState.STOPPED and (killed := restarts.describe_killed_ranks(attempt)):
        reason, params = TaskReason.STOPPED_AND_KILLED, killed
    elif to is TaskState.FAILED and (loop := crash_analysis.find_loop_reason(task, attempt)):
        reason, params = loop
    elif reason == TaskReason.COMPLETED and params:
        reason = TaskReason.COMPLETED_AND_KILLED
    elif reason == TaskReason.COMPLETED and (found := diagnosis.describe_missing_steps(task, attempt)):
        reason, params = TaskReason.COMPLETED_WITHOUT_STEP, found
    with transitions.lock_task(task):
        Attempt.objects.filter(pk=attempt.pk, ended_at=None).update(ended_at=now())
        ending = {"number": attempt.number, "outcome": attempt.outcome, **attempt.outcome_params}
        transitions.record_event(task.pk, attempt.number, "attempt", "ATTEMPT_ENDED", ending)
        if attempt.outcome == TaskReason.COMPLETED:
            crash_analysis.record_left_running(task, attempt)
        if again:
            same = {"outcome": attempt.outcome, "times": again["again"], "step": again["step"]}
            transitions.record_event(
                task.pk, attempt.number, "attempt", "SAME_FAILURE", {**attempt.outcome_params, **same}
            )
        leases.release_ports(attempt.name)
        transitions.change_state(task, to, reason, params)
        if gives_way:
            entry.suspend_task(task)
        if report is not None:
            runs.finish_test(task, report)
        _release_if_final(task)
    return None if restart else timedelta()


def report_waiting(task: Task, decision: ReconcileDecision) -> timedelta:
    """Store that the engine cannot be asked, and remove that reason once it can be."""
    if not is_reason_stored(task, decision):
        transitions.explain_wait(task, decision.cause.code, dict(decision.cause.params))
    return RECONCILE_INTERVALS[TaskState(task.state)]


def is_reason_stored(task: Task, decision: ReconcileDecision) -> bool:
    """Return True if the stored reason is the decision's. A starting task keeps the last reason it got."""
    return task.reason == decision.cause.code or (not decision.cause.code and task.state == TaskState.STARTING)


def report_engine_error(task: Task, cause: Cause) -> timedelta:
    """Store why the engine could not carry out the action; it is tried again soon."""
    transitions.explain_wait(task, cause.code, dict(cause.params))
    return min(RECONCILE_INTERVALS[TaskState(task.state)], RECONCILE_INTERVALS[TaskState.STARTING])


def end_task(task: Task, decision: ReconcileDecision) -> timedelta | None:
    """End a task that has no attempt."""
    assert decision.to is not None
    with transitions.lock_task(task):
        transitions.change_state(task, decision.to, decision.cause.code, decision.cause.params)
        runs.stop_with_task(task)
        drills.stop_with_task(task)
        _release_if_final(task)
    return timedelta()


def has_new_observation(attempt: Attempt, observation: Observation) -> bool:
    """Return True if the observation differs from the stored one and is known."""
    return observation.phase is not Phase.UNKNOWN and attempt.seen_mark != observation_store.compute_digest(observation)


def _store_outcome(task: Task, attempt: Attempt, outcome: str, params: dict[str, Any]) -> None:
    """Store the attempt's outcome unless another process stored one first (StaleTaskError). The attempt is being ended
    from now on, with a deadline of its own."""
    with transitions.lock_task(task):
        first = Attempt.objects.filter(pk=attempt.pk, outcome=attempt.outcome)
        if not first.update(**outcomes.build_outcome_columns(outcome, params)):
            raise transitions.StaleTaskError(task.pk)
        transitions.record_event(task.pk, attempt.number, "attempt", "ATTEMPT_ENDING", {"outcome": outcome, **params})
        if outcome == TaskReason.STOPPED_BY_USER:
            transitions.change_state(task, TaskState.STOPPING, outcome, params)
        elif outcome != TaskReason.COMPLETED:
            transitions.explain_wait(task, outcome, params)
        grace = timedelta(seconds=task.spec["grace_seconds"])
        Task.objects.filter(pk=task.pk).update(deadline_at=now() + grace + DEADLINES[TaskState.STOPPING])


def _release_if_final(task: Task) -> None:
    if TaskState(task.state) in FINAL_STATES:
        if task.kind == TaskKind.DRILL:
            drills.finish_drill(task)
        if not entry.return_environments(task):
            release.release_environments(task)
        task_environments.finish_environments(task)
        wakeups.enqueue_waiting_tasks()
