"""What a pass does for each act of a decision, and how long it waits then before the next check (None: it goes on at
once). Acts are idempotent under fixed names, and are carried out before they are recorded."""

import logging
from datetime import timedelta
from typing import Any

import orjson
from django.db import transaction

from apps.accounts import audit
from apps.accounts import secrets as vault
from apps.clusters.models import DevEnvironment
from apps.common.clock import now
from apps.environments import gpu_allocation, specs, transitions
from apps.environments.models import Hosted, Run
from apps.environments.states import ARROWS, State, Wanted, idling
from apps.environments.states.decisions import Act, Decision
from apps.environments.states.limits import ENGINE_AWAY, GRACE_SECONDS, LASTED, LOOK_AGAIN
from apps.environments.states.reasons import Reason
from apps.notices.services.incidents import tell
from fermi.engines.environments import HostedHandle, HostedSpec, Hosting
from fermi.jobs.spec import Cause, Rendered

log = logging.getLogger(__name__)


def wait(hosted: Hosted, cause: Cause) -> timedelta:
    """Stay in the state and record why."""
    transitions.explain(hosted, cause)
    return LOOK_AGAIN[State(hosted.state)]


def away(hosted: Hosted, cause: Cause) -> timedelta:
    """Record that the engine cannot do it now; try again after ENGINE_RETRY_DELAY."""
    transitions.explain(hosted, cause)
    return ENGINE_AWAY


def refused(hosted: Hosted, decision: Decision, cause: Cause) -> timedelta | None:
    """Handle a permanent refusal by the engine: what was to start is recorded as failed."""
    if decision.act is Act.START and State(hosted.state) is not State.STOPPING:
        return record(hosted, Decision(Act.RECORD, State.STOPPING, cause))
    if decision.act is Act.BEGIN and State.FAILED in ARROWS[State(hosted.state)]:
        return advance(hosted, Decision(Act.MOVE, State.FAILED, cause))
    return away(hosted, cause)


def begin(hosted: Hosted, hosting: Hosting) -> timedelta | None:
    """Create another run: store the GPUs it needs and what its engine will be sent; send nothing yet."""
    environment, number = hosted.environment, hosted.run + 1
    spec = specs.load(hosted.spec, number)
    try:
        vault.reveal(spec.project, spec.secret_env)
        there = gpu_allocation.there(hosting, spec)
        with transitions.owned(hosted):
            numbers = gpu_allocation.hold(hosted, environment.cluster_id, spec, there)
    except vault.Unavailable as missing:
        return wait(hosted, Cause(missing.code, missing.params))
    except gpu_allocation.Taken as taken:
        return wait(hosted, Cause(taken.problem.code, taken.problem.params))
    spec = specs.load({**hosted.spec, "gpus": numbers}, number)
    rendered = hosting.render(spec)
    with transaction.atomic():
        transitions.move(hosted, State.STARTING, run=number, seen={}, active_at=now(), warned_at=None)
        DevEnvironment.objects.filter(pk=hosted.pk).update(**specs.facts(spec))
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


def start(hosted: Hosted, run: Run, hosting: Hosting, decision: Decision) -> timedelta:
    """Send the run to its engine."""
    spec = specs.load(hosted.spec, hosted.run)
    try:
        secrets = vault.reveal(spec.project, spec.secret_env)
    except vault.Unavailable as missing:
        return wait(hosted, Cause(missing.code, missing.params))
    rendered = Rendered.from_json(run.rendered) if run.rendered else _late(hosted, run, spec, hosting)
    hosting.start(rendered, secrets)
    if run.sent_at is None:
        with transitions.owned(hosted):
            Run.objects.filter(pk=run.pk, sent_at=None).update(sent_at=now())
    transitions.explain(hosted, decision.cause)
    return LOOK_AGAIN[State.STARTING]


def _late(hosted: Hosted, run: Run, spec: HostedSpec, hosting: Hosting) -> Rendered:
    """Return what the engine is sent for a run that existed before the platform managed it."""
    rendered = hosting.render(spec)
    with transitions.owned(hosted):
        Run.objects.filter(pk=run.pk).update(rendered=orjson.loads(orjson.dumps(rendered.to_json())))
    return rendered


def advance(hosted: Hosted, decision: Decision) -> timedelta | None:
    """Change the state where nothing else is to be done."""
    assert decision.to
    with transitions.owned(hosted):
        if decision.to is State.RUNNING:
            Run.objects.filter(environment=hosted.pk, number=hosted.run, running_at=None).update(running_at=now())
            transitions.move(hosted, decision.to, active_at=now())
        elif decision.to is State.STARTING:
            transitions.move(hosted, decision.to, decision.cause)
        else:
            wanted = {"wanted": Wanted.STOPPED} if decision.to is State.FAILED else {}
            transitions.move(hosted, decision.to, decision.cause, **wanted)
            gpu_allocation.free(hosted)
    return None


def record(hosted: Hosted, decision: Decision) -> timedelta | None:
    """Record that the run has ended, and why."""
    cause = decision.cause
    if cause.code == Reason.IDLE:
        cause = Cause(cause.code, {"minutes": hosted.idle_stop_minutes}, asked=True)
    try:
        with transaction.atomic():
            transitions.end(hosted, cause)
            if cause.code == Reason.IDLE:
                said = {"wanted": Wanted.STOPPED, "asked_code": cause.code, "asked_params": dict(cause.params)}
                Hosted.objects.filter(pk=hosted.pk).update(**said)
                project = hosted.environment.project_id
                audit.record(None, "environment.idle-stop", hosted.pk, project=project, **cause.params)
    except transitions.Held:
        return LOOK_AGAIN[State.RUNNING]
    return None


def stop(hosted: Hosted, hosting: Hosting, decision: Decision) -> timedelta:
    """Have the engine stop what is left of the run."""
    hosting.stop(HostedHandle(hosted.pk, hosted.run), GRACE_SECONDS)
    if decision.cause.code:
        transitions.explain(hosted, decision.cause)
    return LOOK_AGAIN[State.STOPPING]


def close(hosted: Hosted, run: Run, decision: Decision) -> timedelta | None:
    """Record that nothing is left of the run. After a run of at least RESET_RETRIES_AFTER the retries start anew."""
    assert decision.to
    moment = now()
    changes: dict[str, Any] = {}
    if decision.to is State.FAILED and hosted.wanted == Wanted.RUNNING:
        changes["wanted"] = Wanted.STOPPED
    if run.running_at and moment - run.running_at >= LASTED:
        changes["asked_run"] = hosted.run + 1
    with transitions.owned(hosted):
        Run.objects.filter(pk=run.pk, ended_at=None).update(ended_at=moment)
        transitions.move(hosted, decision.to, decision.cause, seen={}, warned_at=None, **changes)
        if hosted.wanted != Wanted.RUNNING:
            gpu_allocation.free(hosted)
    return None


def remove(hosted: Hosted, hosting: Hosting | None, decision: Decision) -> timedelta:
    """Have the engine delete the disk; when it is gone, delete the row. If the engine does not exist any more, delete
    the row at once."""
    if hosting is not None and not hosting.delete(hosted.pk):
        if decision.cause.code:
            transitions.explain(hosted, decision.cause)
        return LOOK_AGAIN[State.DELETED]
    with transitions.owned(hosted):
        environment = DevEnvironment.objects.filter(pk=hosted.pk).first()
        if environment is not None:
            told = {"name": environment.name, "runs": hosted.run}
            audit.record(None, "environment.deleted", hosted.pk, project=environment.project_id, **told)
            environment.delete()
    return timedelta()


def warn(hosted: Hosted, stops: idling.Use) -> timedelta:
    """Notify the owner that the environment is about to stop."""
    moment, at = now(), idling.stops_at(stops)
    environment = hosted.environment
    ends = max(at or moment, moment + idling.ahead(timedelta(minutes=stops.minutes or 0)))
    params = {"environment": environment.name, "minutes": stops.minutes, "ends": ends.timestamp()}
    with transaction.atomic():
        if not transitions.same(hosted).filter(warned_at=hosted.warned_at).update(warned_at=moment):
            raise transitions.Stale(hosted.pk)
        transitions.record(hosted, "ENVIRONMENT_IDLE_WARNED", params)
        link = f"/environments/{hosted.pk}"
        project, owner = environment.project_id, environment.owner_id
        tell("environment_idle", hosted.pk, "NOTICE_ENVIRONMENT_IDLE", params, project=project, owner=owner, link=link)
    hosted.warned_at = moment
    return LOOK_AGAIN[State.RUNNING]
