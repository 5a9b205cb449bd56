"""What a pass does for each act of a decision, and how long it waits then before the next check (None: it goes on at
once). Acts are idempotent under fixed names, and are carried out before they are recorded."""

import logging
from datetime import timedelta
from typing import Any

import orjson
from django.db import transaction

from apps.accounts import audit
from apps.accounts import secrets as project_secrets
from apps.clusters.models import DevEnvironment
from apps.common.clock import now
from apps.environments import gpu_allocation, own_secrets, specs, transitions
from apps.environments.models import Hosted, Run
from apps.environments.states import TRANSITIONS, DesiredState, EnvironmentState, idleness
from apps.environments.states.deadlines import ENGINE_RETRY_DELAY, GRACE_SECONDS, RECHECK_AFTER, RESET_RETRIES_AFTER
from apps.environments.states.decisions import Act, EnvironmentDecision
from apps.environments.states.reasons import EnvironmentReason
from apps.notices.services.incidents import open_incident
from fermi.engines.environments import EnvironmentBackend, EnvironmentHandle, EnvironmentSpec
from fermi.jobs.spec import Cause, Rendered

log = logging.getLogger(__name__)


def record_waiting(hosted: Hosted, cause: Cause) -> timedelta:
    """Stay in the state and record why."""
    transitions.record_wait_reason(hosted, cause)
    return RECHECK_AFTER[EnvironmentState(hosted.state)]


def retry_later(hosted: Hosted, cause: Cause) -> timedelta:
    """Record that the engine cannot do it now; try again after ENGINE_RETRY_DELAY."""
    transitions.record_wait_reason(hosted, cause)
    return ENGINE_RETRY_DELAY


def handle_refusal(hosted: Hosted, decision: EnvironmentDecision, cause: Cause) -> timedelta | None:
    """Handle a permanent refusal by the engine: what was to start is recorded as failed."""
    if decision.act is Act.START and EnvironmentState(hosted.state) is not EnvironmentState.STOPPING:
        return record_end(hosted, EnvironmentDecision(Act.RECORD, EnvironmentState.STOPPING, cause))
    if decision.act is Act.BEGIN and EnvironmentState.FAILED in TRANSITIONS[EnvironmentState(hosted.state)]:
        return advance_state(hosted, EnvironmentDecision(Act.MOVE, EnvironmentState.FAILED, cause))
    return retry_later(hosted, cause)


def create_run(hosted: Hosted, hosting: EnvironmentBackend) -> timedelta | None:
    """Create another run: store the GPUs it needs and what its engine will be sent; send nothing yet."""
    environment, number = hosted.environment, hosted.run + 1
    spec = specs.load_spec(hosted.spec, number)
    try:
        own_secrets.reveal_run_secrets(spec)
        there = gpu_allocation.count_host_gpus(hosting, spec)
        with transitions.lock_unchanged(hosted):
            numbers = gpu_allocation.assign_gpus(hosted, environment.cluster_id, spec, there)
    except project_secrets.SecretUnavailableError as missing:
        return record_waiting(hosted, Cause(missing.code, missing.params))
    except gpu_allocation.GpusTakenError as taken:
        return record_waiting(hosted, Cause(taken.problem.code, taken.problem.params))
    spec = specs.load_spec({**hosted.spec, "gpus": numbers}, number)
    rendered = hosting.render(spec)
    with transaction.atomic():
        transitions.change_state(
            hosted, EnvironmentState.STARTING, run=number, seen={}, active_at=now(), warned_at=None
        )
        DevEnvironment.objects.filter(pk=hosted.pk).update(**specs.build_columns(spec))
        Run.objects.create(
            environment=hosted.pk,
            number=number,
            name=spec.name,
            project_id=environment.project_id,
            owner_id=environment.owner_id,
            zone=environment.zone_id,
            gpu_type=spec.gpu_type,
            gpu_count=spec.gpu_count,
            rendered=orjson.loads(orjson.dumps(rendered.to_json())),
            created_at=now(),
        )
    return None


def start_run(hosted: Hosted, run: Run, hosting: EnvironmentBackend, decision: EnvironmentDecision) -> timedelta:
    """Send the run to its engine."""
    spec = specs.load_spec(hosted.spec, hosted.run)
    try:
        secrets = own_secrets.reveal_run_secrets(spec)
    except project_secrets.SecretUnavailableError as missing:
        return record_waiting(hosted, Cause(missing.code, missing.params))
    rendered = Rendered.from_json(run.rendered) if run.rendered else _render_late(hosted, run, spec, hosting)
    hosting.start(rendered, secrets)
    if run.sent_at is None:
        with transitions.lock_unchanged(hosted):
            Run.objects.filter(pk=run.pk, sent_at=None).update(sent_at=now())
    transitions.record_wait_reason(hosted, decision.cause)
    return RECHECK_AFTER[EnvironmentState.STARTING]


def _render_late(hosted: Hosted, run: Run, spec: EnvironmentSpec, hosting: EnvironmentBackend) -> Rendered:
    """Return what the engine is sent for a run that existed before the platform managed it."""
    rendered = hosting.render(spec)
    with transitions.lock_unchanged(hosted):
        Run.objects.filter(pk=run.pk).update(rendered=orjson.loads(orjson.dumps(rendered.to_json())))
    return rendered


def advance_state(hosted: Hosted, decision: EnvironmentDecision) -> timedelta | None:
    """Change the state where nothing else is to be done."""
    assert decision.to
    with transitions.lock_unchanged(hosted):
        if decision.to is EnvironmentState.RUNNING:
            Run.objects.filter(environment=hosted.pk, number=hosted.run, running_at=None).update(running_at=now())
            transitions.change_state(hosted, decision.to, active_at=now())
        elif decision.to is EnvironmentState.STARTING:
            transitions.change_state(hosted, decision.to, decision.cause)
        else:
            wanted = {"wanted": DesiredState.STOPPED} if decision.to is EnvironmentState.FAILED else {}
            transitions.change_state(hosted, decision.to, decision.cause, **wanted)
            gpu_allocation.release_gpus(hosted)
    return None


def record_end(hosted: Hosted, decision: EnvironmentDecision) -> timedelta | None:
    """Record that the run has ended, and why."""
    cause = decision.cause
    if cause.code == EnvironmentReason.IDLE:
        cause = Cause(cause.code, {"minutes": hosted.idle_stop_minutes}, asked=True)
    try:
        with transaction.atomic():
            transitions.end_run(hosted, cause)
            if cause.code == EnvironmentReason.IDLE:
                wanted = DesiredState.DELETED if hosted.purpose else DesiredState.STOPPED
                said = {"wanted": wanted, "asked_code": cause.code, "asked_params": dict(cause.params)}
                Hosted.objects.filter(pk=hosted.pk).update(**said)
                project = hosted.environment.project_id
                audit.record_event(None, "environment.idle-stop", hosted.pk, project=project, **cause.params)
    except transitions.EnvironmentInUseError:
        return RECHECK_AFTER[EnvironmentState.RUNNING]
    return None


def stop_run(hosted: Hosted, hosting: EnvironmentBackend, decision: EnvironmentDecision) -> timedelta:
    """Have the engine stop what is left of the run."""
    hosting.stop(EnvironmentHandle(hosted.pk, hosted.run), GRACE_SECONDS)
    if decision.cause.code:
        transitions.record_wait_reason(hosted, decision.cause)
    return RECHECK_AFTER[EnvironmentState.STOPPING]


def close_run(hosted: Hosted, run: Run, decision: EnvironmentDecision) -> timedelta | None:
    """Record that nothing is left of the run. After a run of at least RESET_RETRIES_AFTER the retries start anew."""
    assert decision.to
    moment = now()
    changes: dict[str, Any] = {}
    if decision.to is EnvironmentState.FAILED and hosted.wanted == DesiredState.RUNNING:
        changes["wanted"] = DesiredState.STOPPED
    if run.running_at and moment - run.running_at >= RESET_RETRIES_AFTER:
        changes["asked_run"] = hosted.run + 1
    with transitions.lock_unchanged(hosted):
        Run.objects.filter(pk=run.pk, ended_at=None).update(ended_at=moment)
        transitions.change_state(hosted, decision.to, decision.cause, seen={}, warned_at=None, **changes)
        if hosted.wanted != DesiredState.RUNNING:
            gpu_allocation.release_gpus(hosted)
    return None


def delete_disk(hosted: Hosted, hosting: EnvironmentBackend | None, decision: EnvironmentDecision) -> timedelta:
    """Have the engine delete the disk; when it is gone, delete the row. If the engine does not exist any more, delete
    the row at once."""
    if hosting is not None and not hosting.delete(hosted.pk):
        if decision.cause.code:
            transitions.record_wait_reason(hosted, decision.cause)
        return RECHECK_AFTER[EnvironmentState.DELETED]
    with transitions.lock_unchanged(hosted):
        environment = DevEnvironment.objects.filter(pk=hosted.pk).first()
        if environment is not None:
            told = {"name": environment.name, "runs": hosted.run}
            audit.record_event(None, "environment.deleted", hosted.pk, project=environment.project_id, **told)
            environment.delete()
    return timedelta()


def warn_owner(hosted: Hosted, stops: idleness.IdleFacts) -> timedelta:
    """Notify the owner that the environment is about to stop. One with a purpose holds no work."""
    moment, at = now(), idleness.compute_stop_time(stops)
    environment = hosted.environment
    ends = max(at or moment, moment + idleness.compute_warning_span(timedelta(minutes=stops.minutes or 0)))
    params = {"environment": environment.name, "minutes": stops.minutes, "ends": ends.timestamp()}
    with transaction.atomic():
        if not transitions.filter_unchanged(hosted).filter(warned_at=hosted.warned_at).update(warned_at=moment):
            raise transitions.StaleStateError(hosted.pk)
        if not hosted.purpose:
            transitions.record_event(hosted, "ENVIRONMENT_IDLE_WARNED", params)
            link = f"/environments/{hosted.pk}"
            project, owner = environment.project_id, environment.owner_id
            open_incident(
                "environment_idle", hosted.pk, "NOTICE_ENVIRONMENT_IDLE", params,
                project=project, owner=owner, link=link,
            )  # fmt: skip
    hosted.warned_at = moment
    return RECHECK_AFTER[EnvironmentState.RUNNING]
