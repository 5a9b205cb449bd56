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
    releasing,
    task_environments,
    transitions,
    uncollected_files,
    wakeups,
)
from apps.training.core.engine_access import backend_for, cause, declared, handle_for, job_for, secrets_of
from apps.training.drills import runs as drills
from apps.training.logs import ingest
from apps.training.logs.trainer_steps import Trainer
from apps.training.models import Attempt, Task
from apps.training.preflight import runs
from apps.training.queue import turn
from apps.training.queue.limits import OverLimit
from apps.training.reconcile import crash_analysis, diagnosis, ports, prerequisites, restarts
from apps.training.states import FINAL, Kind, State
from apps.training.states.decisions import Decision
from apps.training.states.limits import (
    DEADLINES,
    FAILURE_GRACE_SECONDS,
    FAILURE_STILL_SECONDS,
    LOOK_AGAIN,
    OVER_LIMIT,
)
from apps.training.states.reasons import GIVEN_WAY, Reason
from fermi.jobs import run_location
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Cause, JobSpec, Observation, Phase, Rendered, attempt_name
from fermi.planning import plugins


def prepare(task: Task) -> timedelta | None:
    """Check what the task needs before it is queued, all side by side; fail it at once if one of them cannot be had,
    else move it to queued when all are ready."""
    needs = prerequisites.needs(task)
    if failed := next((need.failed for need in needs if need.failed), None):
        with transitions.owned(task):
            transitions.move(task, State.FAILED, failed.code, failed.params)
            _release_if_final(task)
        return timedelta()
    if waits := next((need.waits for need in needs if need.waits), None):
        transitions.explain(task, waits.code, waits.params)
        return LOOK_AGAIN[State.INITIALIZING]
    spec = dict(task.spec)
    for need in needs:
        spec |= need.known
    transitions.move(task, State.QUEUED, spec=spec)
    return None


def lease(task: Task) -> timedelta | None:
    """Start the next attempt on its own port once the task holds all its environments; until then it stands in the
    queue.

    If an environment was lost, a spare takes its place, an elastic task goes on without it, and a task that requested
    capacity queues for other environments; one that is back takes part again. Never before the back-off is over, not
    even after a hint.
    """
    if task.paused_at or task.preempted_at:
        return turn.rest(task)
    if (begins := restarts.begins_at(task.attempts.all())) and begins > (moment := now()):
        return begins - moment
    if full := restarts.still_full(task.attempts.all()):
        transitions.explain(task, *full)
        return LOOK_AGAIN[State.QUEUED]
    if (remaining := restarts.remaining(task)) is not None and remaining <= timedelta():
        with transitions.owned(task):
            transitions.move(task, State.FAILED, Reason.RUN_TIMEOUT)
            _release_if_final(task)
        return timedelta()
    job = JobSpec.from_json(task.spec)
    is_given = not task.attempt and bool(leases.held(task.pk))
    if placement.replace_lost(task) or (not is_given and elastic_size.resize(task)):
        return None
    if lost := placement.first_unusable(job):
        if task.select and turn.decides(task):
            return turn.stand(task, job)
        return _aside(task, Reason.ENVIRONMENT_UNAVAILABLE, lost)
    if job.when_in_use == "wait" and not task.attempt:
        using = memory.in_use(node.id for node in job.nodes)
        if using.environments:
            return _aside(task, Reason.ENVIRONMENTS_IN_USE, {"environments": memory.named(using.environments)})
        if using.looking:
            return _aside(task, Reason.MEMORY_LOOKED_AT, {})
    try:
        secrets_of(task)
    except secrets.Unavailable as absent:
        return _aside(task, absent.code, absent.params)
    turn.learn_way(task, job)
    if not turn.has_turn(task, job):
        wait = turn.stand(task, job)
        if wait is not None or task.select:  # what was chosen for it is yet to be loaded
            return wait
    for stage in (runs.stage, drills.stage):
        if (wait := stage(task)) is not None:
            return wait
    try:
        code.lay_ready(job)
    except (store.Lost, OSError) as lost_code:
        return _aside(task, Reason.CODE_LOST, {"why": str(lost_code)})
    backend = backend_for(task.cluster)
    there = ports.look(task, backend)
    settled, _ = run_location.settle(job, backend.ways(job))  # a spare may have taken a place, GPUs may be free now
    number, (resume_from, in_vain) = task.attempt + 1, checkpoint_choice.point(task)
    try:
        with transitions.owned(task):
            held = turn.take(task, job)
            if not held:
                port = there.take(attempt_name(task.pk, number))
                attempt = Attempt(
                    task=task, number=number, master_port=port, resume_from=resume_from, created_at=now(), plan={}
                )
                launched = drills.rehearsed(task, job_for(task, settled, attempt, remaining))
                plan = plugins.planner(task.framework).plan(launched)
                attempt.plan = backend.render(launched, plan).to_json()
                attempt.save(force_insert=True)
                spec = task.spec if settled == job else {**task.spec, "nodes": settled.to_json()["nodes"]}
                transitions.move(task, State.STARTING, attempt=number, resize_requested_at=None, spec=spec)
                params = {"number": number, "port": port, "resumeFrom": resume_from}
                transitions.record(task.pk, number, "attempt", "ATTEMPT_BEGAN", params)
                if there.busy:
                    transitions.record(task.pk, number, "attempt", "MASTER_PORT_BUSY", {**there.busy, "instead": port})
                if back := diagnosis.stepped_back(task, resume_from, in_vain):
                    transitions.record(task.pk, number, "attempt", *back)
                elif again := checkpoint_choice.steps_without(task, resume_from):
                    transitions.record(task.pk, number, "attempt", "RESUMED_WITHOUT_CHECKPOINT", {"lost": again})
    except OverLimit as over:
        _aside(task, over.problem.code, over.problem.params)
        return OVER_LIMIT
    except leases.NoFreePort:
        if there.candidates:  # other attempts leased them first: try again
            return timedelta()
        return _aside(task, Reason.PORTS_TAKEN, there.explained())
    if held:  # another task took one outside of the queue: queue again
        return turn.stand(task, job)
    return None


def _aside(task: Task, code: str, params: Mapping[str, Any]) -> timedelta:
    """Take the task out of the queue while it waits for something of its own, so that it blocks no other; store the
    reason."""
    turn.step_aside(task)
    transitions.explain(task, code, params)
    return LOOK_AGAIN[State.QUEUED]


def submit(task: Task, attempt: Attempt, decision: Decision) -> timedelta | None:
    """Submit the attempt to the engine, and store why it waits there. A permanent error is stored as the attempt's
    outcome."""
    waiting = decision.cause
    try:
        backend_for(task.cluster).submit(Rendered.from_json(attempt.plan), secrets_of(task))
    except secrets.Unavailable as absent:
        _store_outcome(task, attempt, absent.code, absent.params)
        return None
    except BackendError as error:
        if error.permanent and declared(task.cluster, error.code):
            _store_outcome(task, attempt, error.code, error.params)
            return None
        if error.permanent:
            _store_outcome(task, attempt, Reason.START_FAILED, {"cause": describe_error(error)})
            return None
        waiting = Cause(error.code, error.params)
    else:
        with transitions.owned(task):
            Attempt.objects.filter(pk=attempt.pk, submitted_at=None).update(submitted_at=now())
    transitions.explain(task, waiting.code, dict(waiting.params))
    return LOOK_AGAIN[State.STARTING]


def advance(task: Task, attempt: Attempt, decision: Decision) -> timedelta | None:
    """Change the state while the attempt goes on."""
    assert decision.to is not None
    with transitions.owned(task):
        if decision.to is State.RUNNING:
            Attempt.objects.filter(pk=attempt.pk, running_at=None).update(running_at=now())
        transitions.move(task, decision.to, attempt.outcome, attempt.outcome_params, **_bounded(task, decision.to))
    return None


def _bounded(task: Task, to: State) -> dict[str, Any]:
    """Return the deadline of a task that limits its own run time; empty for others."""
    remaining = restarts.remaining(task) if to is State.RUNNING else None
    return {} if remaining is None else {"deadline_at": now() + max(remaining, timedelta())}


def record_outcome(task: Task, attempt: Attempt, decision: Decision) -> timedelta | None:
    """Store the outcome of an attempt whose end is known, with what its ranks and logs explain."""
    params = dict(decision.cause.params)
    if isinstance(ranks := params.get("ranks"), list):
        names = task.nodes.filter(node_rank__in=params["node"]).values_list("name", flat=True)
        params |= {"ranks": restarts.named(ranks), "node": restarts.named(list(names))}
    _store_outcome(task, attempt, *crash_analysis.told(task, attempt, decision.cause.code, params))
    return None


def cancel(task: Task, attempt: Attempt, decision: Decision) -> timedelta | None:
    """Ask the engine to end what is left of the attempt."""
    asked = cause(task.cluster, attempt.outcome).asked
    grace, still = (task.spec["grace_seconds"], None) if asked else (FAILURE_GRACE_SECONDS, FAILURE_STILL_SECONDS)
    backend_for(task.cluster).cancel(handle_for(task, attempt.number), grace, still)
    if decision.cause.code:
        transitions.explain(task, decision.cause.code, decision.cause.params)
    elif attempt.outcome != Reason.COMPLETED:  # the engine could not be asked for a while, and can again
        transitions.explain(task, attempt.outcome, attempt.outcome_params)
    return LOOK_AGAIN[State.STOPPING]


def close(task: Task, attempt: Attempt, decision: Decision) -> timedelta | None:
    """Close an attempt of which nothing is left: read its output to the end, then restart or end the task."""
    assert decision.to is not None
    ranks = attempt.seen.get("ranks", ())
    trainer = Trainer.of(rank.get("trainer") for rank in ranks)
    ingest.drain(task.pk, attempt.number, trainer)
    if trainer:
        ingest.count_steps(task.pk, attempt.number, trainer.step, trainer.total)
    elif (step := max((rank.get("last_step") or 0 for rank in ranks), default=0)) > 0:
        ingest.count_steps(task.pk, attempt.number, step)
    with suppress(BackendError):
        uncollected_files.note(task, attempt.number)
    if crash_analysis.corrected(task, attempt):
        return None  # the rest of the output may change the decision: decide again
    report = runs.report(task, attempt.number) if task.kind == Kind.PREFLIGHT else None
    to = State.FAILED if decision.to is State.QUEUED and diagnosis.is_last(task, attempt) else decision.to
    restart = to is State.QUEUED
    gives_way = restart and attempt.outcome in GIVEN_WAY
    again = restarts.repeated(task.attempts.all(), attempt, crash_analysis.last_steps(task, attempt))
    reason, params = attempt.outcome, {**attempt.outcome_params, **again}
    if restart and not gives_way:
        reason, params = Reason.RESTARTING, {"cause": attempt.outcome, "next": attempt.number + 1, **params}
    elif to is State.STOPPED and (killed := restarts.killed_by_a_stop(attempt)):
        reason, params = Reason.STOPPED_AND_KILLED, killed
    elif to is State.FAILED and (loop := crash_analysis.reason(task, attempt)):
        reason, params = loop
    elif reason == Reason.COMPLETED and params:
        reason = Reason.COMPLETED_AND_KILLED
    elif reason == Reason.COMPLETED and (found := diagnosis.without_step(task, attempt)):
        reason, params = Reason.COMPLETED_WITHOUT_STEP, found
    with transitions.owned(task):
        Attempt.objects.filter(pk=attempt.pk, ended_at=None).update(ended_at=now())
        ending = {"number": attempt.number, "outcome": attempt.outcome, **attempt.outcome_params}
        transitions.record(task.pk, attempt.number, "attempt", "ATTEMPT_ENDED", ending)
        if attempt.outcome == Reason.COMPLETED:
            crash_analysis.note_left_running(task, attempt)
        if again:
            same = {"outcome": attempt.outcome, "times": again["again"], "step": again["step"]}
            transitions.record(task.pk, attempt.number, "attempt", "SAME_FAILURE", {**attempt.outcome_params, **same})
        leases.release_ports(attempt.name)
        transitions.move(task, to, reason, params)
        if gives_way:
            turn.rest(task)
        if report is not None:
            runs.finish(task, report)
        _release_if_final(task)
    return None if restart else timedelta()


def wait(task: Task, decision: Decision) -> timedelta:
    """Store that the engine cannot be asked, and remove that reason once it can be."""
    if not is_said(task, decision):
        transitions.explain(task, decision.cause.code, dict(decision.cause.params))
    return LOOK_AGAIN[State(task.state)]


def is_said(task: Task, decision: Decision) -> bool:
    """Return True if the stored reason is the decision's. A starting task keeps the last reason it got."""
    return task.reason == decision.cause.code or (not decision.cause.code and task.state == State.STARTING)


def wait_for_engine(task: Task, cause: Cause) -> timedelta:
    """Store why the engine could not carry out the action; it is tried again soon."""
    transitions.explain(task, cause.code, dict(cause.params))
    return min(LOOK_AGAIN[State(task.state)], LOOK_AGAIN[State.STARTING])


def end(task: Task, decision: Decision) -> timedelta | None:
    """End a task that has no attempt."""
    assert decision.to is not None
    with transitions.owned(task):
        transitions.move(task, decision.to, decision.cause.code, decision.cause.params)
        runs.end_with(task)
        drills.end_with(task)
        _release_if_final(task)
    return timedelta()


def is_news(attempt: Attempt, observation: Observation) -> bool:
    """Return True if the observation differs from the stored one and is known."""
    return observation.phase is not Phase.UNKNOWN and attempt.seen_mark != observation_store.mark(observation)


def _store_outcome(task: Task, attempt: Attempt, outcome: str, params: dict[str, Any]) -> None:
    """Store the attempt's outcome unless another process stored one first (StaleTaskError). The attempt is being ended
    from now on, with a deadline of its own."""
    with transitions.owned(task):
        first = Attempt.objects.filter(pk=attempt.pk, outcome=attempt.outcome)
        if not first.update(**outcomes.stored(outcome, params)):
            raise transitions.Stale(task.pk)
        transitions.record(task.pk, attempt.number, "attempt", "ATTEMPT_ENDING", {"outcome": outcome, **params})
        if outcome == Reason.STOPPED_BY_USER:
            transitions.move(task, State.STOPPING, outcome, params)
        elif outcome != Reason.COMPLETED:
            transitions.explain(task, outcome, params)
        grace = timedelta(seconds=task.spec["grace_seconds"])
        Task.objects.filter(pk=task.pk).update(deadline_at=now() + grace + DEADLINES[State.STOPPING])


def _release_if_final(task: Task) -> None:
    if State(task.state) in FINAL:
        if task.kind == Kind.DRILL:
            drills.finish(task)
        if not turn.give_on(task):
            releasing.give_back(task)
        task_environments.finish(task)
        wakeups.poke_waiting()
