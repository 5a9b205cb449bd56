"""Starting, stopping, restarting, keeping, resizing and deleting managed environments. Each is recorded in the
environment's events and the audit trail."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import transaction

from apps.accounts import access, audit
from apps.accounts.models import Role, User
from apps.clusters import services as clusters
from apps.clusters.models import DevEnvironment
from apps.common.clock import now
from apps.common.errors import ApiError, ProblemsError
from apps.environments import hints, specs, standby, transitions
from apps.environments.models import Hosted, Run
from apps.environments.services import admission
from apps.environments.states import WITH_RUN, Action, State, Wanted, allowed_actions
from apps.environments.states.limits import MOST_KEPT
from apps.environments.states.reasons import CAUSES, Reason
from apps.environments.validation import hosting_problems
from apps.notices.services.incidents import over
from fermi.jobs.spec import Cause

LIVES = frozenset({
    "status", "kind", "image", "gpu_type", "gpu_count", "emulated", "cpu_cores", "memory_gb", "host", "ip", "versions",
    "engine", "zone",
})  # fmt: skip
"""Columns of a managed environment that follow from its lifecycle and its spec."""


def find(environment: DevEnvironment) -> Hosted:
    """Return the environment's lifecycle. Raises ApiError 409 if the platform does not manage it."""
    hosted = Hosted.objects.filter(pk=environment.pk).first()
    if hosted is None:
        raise ApiError(409, "ENVIRONMENT_NOT_OURS", environment=environment.name)
    return hosted


def start(user: User, environment: DevEnvironment) -> None:
    """Start the environment (member). Repeating it changes nothing."""
    hosted = _steered(user, environment)
    if hosted.wanted == Wanted.RUNNING:
        return
    _refuse_unless(hosted, Action.START)
    spec = specs.load(hosted.spec, 0)
    there = admission.there(environment, spec)
    with transaction.atomic():
        hosted = _locked(hosted)
        if hosted.wanted != Wanted.STOPPED:
            return
        admission.admit(environment.project, environment.owner, 0, spec.gpu_count)
        admission.hold(hosted, environment.cluster_id, spec, there)
        _want(hosted, Wanted.RUNNING, None, asked_run=hosted.run + 1, active_at=now(), warned_at=None, keep_until=None)
        _told(user, hosted, "start", "ENVIRONMENT_START_ASKED", {})


def stop(user: User, environment: DevEnvironment) -> None:
    """Stop the environment (member); its disk stays. Repeating it changes nothing."""
    hosted = _steered(user, environment)
    if hosted.wanted == Wanted.STOPPED:
        return
    _refuse_unless(hosted, Action.STOP)
    cause = _asked(Reason.STOPPED, by=user.username)
    with _ending(environment, hosted) as locked:
        _want(locked, Wanted.STOPPED, cause)
        _end(locked, cause)
        _told(user, locked, "stop", "ENVIRONMENT_STOP_ASKED", {})


def restart(user: User, environment: DevEnvironment) -> None:
    """Start another run, with the present sizes (member)."""
    hosted = _steered(user, environment)
    _refuse_unless(hosted, Action.RESTART)
    cause = _asked(Reason.RESTARTED, by=user.username)
    with _ending(environment, hosted) as locked:
        _refuse_unless(locked, Action.RESTART)
        changes = {"asked_run": locked.run + 1, "restart_run": locked.run}
        _want(locked, Wanted.RUNNING, cause, **changes)
        _end(locked, cause)
        _told(user, locked, "restart", "ENVIRONMENT_RESTART_ASKED", {})


def keep(user: User, environment: DevEnvironment, hours: float) -> None:
    """Keep the environment from stopping when idle, for `hours` from now (member)."""
    hosted = _steered(user, environment)
    if not 0 < hours <= MOST_KEPT:
        raise ApiError(400, "KEEP_HOURS", "hours", found=hours, high=MOST_KEPT)
    with transaction.atomic():
        hosted = _locked(hosted)
        _refuse_unless(hosted, Action.KEEP)
        until = now() + timedelta(hours=hours)
        Hosted.objects.filter(pk=hosted.pk).update(keep_until=until, warned_at=None)
        over(hosted.pk, "environment_idle")
        _told(user, hosted, "keep", "ENVIRONMENT_KEEP_ASKED", {"until": until.timestamp()})


def resize(user: User, environment: DevEnvironment, changes: Mapping[str, Any]) -> None:
    """Change the sizes (member): from the next start on, or at once if it does not run."""
    hosted = _steered(user, environment)
    _refuse_unless(hosted, Action.RESIZE)
    spec = specs.load({**hosted.spec, **changes}, 0)
    resized = spec.disk_gb != hosted.spec["disk_gb"]
    if problems := hosting_problems(environment.cluster, spec, resized=resized):
        raise ProblemsError(problems)
    there = admission.there(environment, spec)
    with transaction.atomic():
        _refuse_held(environment)
        hosted = _locked(hosted)
        _refuse_unless(hosted, Action.RESIZE)
        before = {name: hosted.spec[name] for name in changes}
        more = spec.gpu_count - hosted.spec["gpu_count"]
        if hosted.wanted == Wanted.RUNNING and more > 0:
            admission.admit(environment.project, environment.owner, 0, more)
        hosted.spec = {**hosted.spec, **changes}
        Hosted.objects.filter(pk=hosted.pk).update(spec=hosted.spec)
        if State(hosted.state) not in WITH_RUN:
            if hosted.wanted == Wanted.RUNNING:
                admission.hold(hosted, environment.cluster_id, spec, there)
            DevEnvironment.objects.filter(pk=hosted.pk).update(**specs.facts(spec))
        _told(user, hosted, "resize", "ENVIRONMENT_RESIZED", {}, before=before, after=dict(changes))


def delete(user: User, environment: DevEnvironment) -> None:
    """Start the deletion of a managed environment and its disk (member); delete a registered one at once
    (maintainer)."""
    hosted = Hosted.objects.filter(pk=environment.pk).first()
    if hosted is None:
        clusters.remove_environment(user, environment)
        return
    access.require(user, environment.project_id, Role.MEMBER)
    if hosted.wanted == Wanted.DELETED:
        return
    cause = _asked(Reason.DELETED, by=user.username)
    with _ending(environment, hosted) as locked:
        _want(locked, Wanted.DELETED, cause)
        _end(locked, cause)
        _told(user, locked, "delete", "ENVIRONMENT_DELETE_ASKED", {})


def change(user: User, environment: DevEnvironment, changes: dict[str, Any]) -> None:
    """Change what is stored of an environment; of a managed one only what does not follow from its lifecycle and
    spec."""
    follows = sorted(LIVES & changes.keys())
    if follows and Hosted.objects.filter(pk=environment.pk).exists():
        raise ApiError(409, "ENVIRONMENT_FOLLOWS_ITS_LIFE", environment=environment.name)
    with transaction.atomic():
        clusters.change_environment(user, environment, changes)
        if "warm" in changes:
            standby.settle([environment])


def retire(hosted: Hosted, wanted: Wanted, cause: Cause) -> None:
    """Stop or delete an environment that was created for a task, without a user's request. Raises
    EnvironmentInUseError."""
    with transaction.atomic():
        transitions.refuse_if_held(hosted.pk)
        locked = _locked(hosted)
        if locked.wanted != Wanted.DELETED:
            _want(locked, wanted, cause, afterwards="")
            _end(locked, cause)
            hints.poke(locked.pk)


def _steered(user: User, environment: DevEnvironment) -> Hosted:
    access.require(user, environment.project_id, Role.MEMBER)
    return find(environment)


@contextmanager
def _ending(environment: DevEnvironment, hosted: Hosted) -> Iterator[Hosted]:
    """Open a transaction in which no task can acquire the environment. Raises ApiError while one holds it."""
    with transaction.atomic():
        _refuse_held(environment)
        yield _locked(hosted)


def _refuse_held(environment: DevEnvironment) -> None:
    try:
        transitions.refuse_if_held(environment.pk)
    except transitions.Held as held:
        raise ApiError(409, "ENVIRONMENT_HELD", environment=environment.name, task=held.task) from None


def _locked(hosted: Hosted) -> Hosted:
    """Return the present row, locked until the transaction ends."""
    found = Hosted.objects.select_for_update().filter(pk=hosted.pk).first()
    if found is None:
        raise ApiError(404, "NOT_FOUND")
    return found


def _refuse_unless(hosted: Hosted, action: Action) -> None:
    if action not in allowed_actions(State(hosted.state), Wanted(hosted.wanted), idles=True):
        raise ApiError(409, "ENVIRONMENT_ACTION_NOT_ALLOWED", action=action, status=hosted.state)


def _want(hosted: Hosted, wanted: Wanted, cause: Cause | None, **changes: Any) -> None:
    code, params = (cause.code, dict(cause.params)) if cause else ("", {})
    values = {"wanted": wanted, "asked_code": code, "asked_params": params, **changes}
    Hosted.objects.filter(pk=hosted.pk).update(**values)
    for name, value in values.items():
        setattr(hosted, name, value)


def _end(hosted: Hosted, cause: Cause) -> None:
    """End the run, if one is alive, without waiting for a pass."""
    is_over = Run.objects.filter(environment=hosted.pk, number=hosted.run).exclude(outcome="").exists()
    if State(hosted.state) in (State.STARTING, State.RUNNING) and not is_over:
        transitions.end(hosted, cause)


def _asked(reason: Reason, **params: Any) -> Cause:
    return Cause(reason, params, asked=CAUSES[reason].asked)


def _told(user: User, hosted: Hosted, verb: str, code: str, params: Mapping[str, Any], **told: Any) -> None:
    transitions.record(hosted, code, {"by": user.username, **params})
    project = DevEnvironment.objects.values_list("project_id", flat=True).get(pk=hosted.pk)
    audit.record(user, f"environment.{verb}", hosted.pk, project=project, **told)
    hints.poke(hosted.pk)
