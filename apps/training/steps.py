"""What a pass does, one function per `Act`. Each is idempotent, calls the engine outside of transactions, and returns
how long to wait before the task is looked at again, or None to go on at once."""

import json
from datetime import timedelta
from itertools import chain, islice
from typing import Any

from django.conf import settings
from django.db import transaction

from apps.catalog.models import DatasetVersion, VersionStatus
from apps.clusters import leases
from apps.clusters.models import DevEnvironment
from apps.common.clock import now
from apps.training import hints, ingest, placing, preflights, transitions
from apps.training.decisions import Decision
from apps.training.launching import backend_for, handle_for, job_for, resume_point
from apps.training.limits import DEADLINES, FAILURE_GRACE_SECONDS, LOOK_AGAIN, backoff
from apps.training.models import Attempt, Task
from apps.training.reasons import Reason
from apps.training.states import FINAL, State
from fermi.launch import registry
from fermi.launch.backends.base import Backend
from fermi.launch.errors import BackendError
from fermi.launch.spec import Cause, JobSpec, Observation, Phase, Rendered


def prepare(task: Task) -> timedelta | None:
    if task.dataset_version_id is None:
        transitions.move(task, State.QUEUED)
        return None
    version = DatasetVersion.objects.get(pk=task.dataset_version_id)
    if version.status == VersionStatus.FAILED:
        transitions.move(task, State.FAILED, Reason.DATASET_FAILED, {"version": version.name, **(version.error or {})})
        return timedelta()
    if version.status == VersionStatus.PREPARING:
        params = {"version": version.name, "percent": int(version.progress * 100)}
        transitions.explain(task, Reason.DATASET_PREPARING, params)
        return LOOK_AGAIN[State.INITIALIZING]
    spec = {**task.spec, "train_data": version.train_path, "valid_data": version.valid_path}
    transitions.move(task, State.QUEUED, spec=spec)
    return None


def lease(task: Task) -> timedelta | None:
    """Takes every environment and a port and begins the next attempt, in one transaction; or says who holds what. Where
    an environment was lost, a spare takes its place first."""
    nodes = JobSpec.from_json(task.spec).nodes
    if lost := placing.unusable(nodes):
        if placing.replace_lost(task):
            return None
        first = next(node for node in nodes if node.id in lost)
        reason = {"environment": first.name, "status": lost[first.id]}
        transitions.explain(task, Reason.ENVIRONMENT_UNAVAILABLE, reason)
        return LOOK_AGAIN[State.QUEUED]
    if (wait := preflights.stage(task)) is not None:
        return wait
    backend = backend_for(task.cluster)
    candidates = _free_ports(task, backend)
    number, resume_from = task.attempt + 1, resume_point(task)
    with transaction.atomic():
        held = leases.take([node.id for node in nodes], task.pk)
        if not held:
            port = leases.take_port(task.cluster_id, candidates, f"{task.pk}-{number}")
            attempt = Attempt(
                task=task, number=number, master_port=port, resume_from=resume_from, created_at=now(), plan={}
            )
            job = job_for(task, attempt)
            plan = registry.planner(task.framework).plan(job)
            attempt.plan = backend.render(job, plan).to_json()
            attempt.save(force_insert=True)
            transitions.move(task, State.STARTING, attempt=number)
            params = {"number": number, "port": port, "resumeFrom": resume_from}
            transitions.record(task.pk, number, "attempt", "ATTEMPT_BEGAN", params)
    if held:
        holders = [{"environment": environment, "task": holder} for environment, holder in held]
        names = dict(DevEnvironment.objects.filter(pk__in=[e for e, _ in held]).values_list("pk", "name"))
        text = ", ".join(f"{names[environment]} ({holder})" for environment, holder in held)
        transitions.explain(task, Reason.WAITING_FOR_ENVIRONMENTS, {"held": text, "holders": holders})
        return LOOK_AGAIN[State.QUEUED]
    return None


def submit(task: Task, attempt: Attempt, decision: Decision) -> timedelta | None:
    waiting = decision.cause
    try:
        backend_for(task.cluster).submit(Rendered.from_json(attempt.plan))
    except BackendError as error:
        known = error.code in list(Reason)
        if error.permanent:
            detail = ", ".join(str(value) for value in error.params.values())
            why = {**error.params} if known else {"why": error.code, "detail": detail}
            _store_outcome(task, attempt, Reason(error.code) if known else Reason.START_FAILED, why)
            return None
        if not known:
            raise
        waiting = Cause(error.code, error.params)
    transitions.explain(task, waiting.code, dict(waiting.params))
    return LOOK_AGAIN[State.STARTING]


def advance(task: Task, attempt: Attempt, decision: Decision) -> timedelta | None:
    assert decision.to is not None
    with transaction.atomic():
        if decision.to is State.RUNNING:
            Attempt.objects.filter(pk=attempt.pk, running_at=None).update(running_at=now())
        transitions.move(task, decision.to, attempt.outcome, attempt.outcome_params)
    return None


def record_outcome(task: Task, attempt: Attempt, decision: Decision) -> timedelta | None:
    _store_outcome(task, attempt, Reason(decision.cause.code), dict(decision.cause.params))
    return None


def cancel(task: Task, attempt: Attempt, decision: Decision) -> timedelta | None:
    stopped = attempt.outcome == Reason.STOPPED_BY_USER
    grace = task.spec["grace_seconds"] if stopped else FAILURE_GRACE_SECONDS
    backend_for(task.cluster).cancel(handle_for(task, attempt.number), grace)
    if decision.cause.code:
        transitions.explain(task, decision.cause.code, {"number": attempt.number})
    return LOOK_AGAIN[State.STOPPING]


def close(task: Task, attempt: Attempt, decision: Decision) -> timedelta | None:
    """Nothing of the attempt is left: everything it printed is read, then the task restarts or ends."""
    assert decision.to is not None
    ingest.drain(task.pk, attempt.number)
    report = preflights.report(task, attempt.number) if task.framework == preflights.PREFLIGHT else None
    ended = now()
    restart = decision.to is State.QUEUED
    reason, params = attempt.outcome, attempt.outcome_params
    if restart:
        reason, params = Reason.RESTARTING, {"cause": attempt.outcome, "next": attempt.number + 1, **params}
    with transaction.atomic():
        Attempt.objects.filter(pk=attempt.pk, ended_at=None).update(ended_at=ended)
        ending = {"number": attempt.number, "outcome": attempt.outcome, **attempt.outcome_params}
        transitions.record(task.pk, attempt.number, "attempt", "ATTEMPT_ENDED", ending)
        leases.release_ports(attempt.name)
        transitions.move(task, decision.to, reason, params)
        if report is not None:
            preflights.finish(task, report)
        _release_if_final(task)
    return (backoff(attempt.number, ended - attempt.created_at) or None) if restart else timedelta()


def end(task: Task, decision: Decision) -> timedelta | None:
    assert decision.to is not None
    with transaction.atomic():
        transitions.move(task, decision.to, decision.cause.code, decision.cause.params)
        preflights.end_with(task)
        _release_if_final(task)
    return timedelta()


def is_news(attempt: Attempt, seen: Observation) -> bool:
    return seen.phase is not Phase.UNKNOWN and attempt.seen != _as_stored(seen)


def remember(attempt: Attempt, seen: Observation) -> None:
    """Keeps the last observation for the page's rank grid."""
    attempt.seen = _as_stored(seen)
    with transaction.atomic():
        Attempt.objects.filter(pk=attempt.pk).update(seen=attempt.seen)
        hints.changed(attempt.task_id, "status")


def _as_stored(seen: Observation) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(json.dumps(seen.to_json()))
    return stored


def _store_outcome(task: Task, attempt: Attempt, outcome: Reason, params: dict[str, Any]) -> None:
    """The first one counts. From here on the attempt is being ended, and that has a deadline of its own."""
    with transaction.atomic():
        first = Attempt.objects.filter(pk=attempt.pk, outcome="").update(outcome=outcome, outcome_params=params)
        if not first:
            raise transitions.Stale(task.pk)
        transitions.record(task.pk, attempt.number, "attempt", "ATTEMPT_ENDING", {"outcome": outcome, **params})
        if outcome is Reason.STOPPED_BY_USER:
            transitions.move(task, State.STOPPING, outcome, params)
        elif outcome is not Reason.COMPLETED:
            transitions.explain(task, outcome, params)
        grace = timedelta(seconds=task.spec["grace_seconds"])
        Task.objects.filter(pk=task.pk).update(deadline_at=now() + grace + DEADLINES[State.STOPPING])


def _free_ports(task: Task, backend: Backend, count: int = 8) -> list[int]:
    """Candidates for this attempt, its own wish first, never the port of the attempt before."""
    last = task.attempts.order_by("-number").values_list("master_port", flat=True).first()
    wish = task.spec["master_port"]
    start = (last or wish) + 1
    ports = settings.MASTER_PORTS
    after = chain(range(max(start, ports.start), ports.stop), ports)
    tried = chain([wish] if last is None else [], after)
    return list(islice((port for port in tried if port != last and backend.port_is_free(port)), count))


def _release_if_final(task: Task) -> None:
    if State(task.state) in FINAL:
        leases.release(task.pk)
        hints.poke_waiting()
