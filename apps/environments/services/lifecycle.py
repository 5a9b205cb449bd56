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
from apps.environments import specs, standby, transitions
from apps.environments.models import Hosted, Run
from apps.environments.services import admission
from apps.environments.states import (
    STATES_WITH_RUN,
    DesiredState,
    EnvironmentAction,
    EnvironmentState,
    list_allowed_actions,
)
from apps.environments.states.deadlines import MAX_KEEP_HOURS
from apps.environments.states.reasons import CAUSES, EnvironmentReason
from apps.environments.transitions import EnvironmentInUseError
from apps.environments.validation import check_backend
from apps.notices.services.incidents import resolve_incidents
from fermi.jobs.spec import Cause

AFTERWARDS_CHOICES = ("delete", "stop", "keep")
_DESIRED_STATES = {"delete": DesiredState.DELETED, "stop": DesiredState.STOPPED}


LIFE_COLUMNS = frozenset({
    "status", "kind", "image", "gpu_type", "gpu_count", "emulated", "cpu_cores", "memory_gb", "host", "ip", "versions",
    "engine", "zone",
})  # fmt: skip
"""Columns of a managed environment that follow from its lifecycle and its spec."""


def get_hosted(environment: DevEnvironment) -> Hosted:
    """Return the environment's lifecycle. Raises ApiError 409 if the platform does not manage it."""
    hosted = Hosted.objects.filter(pk=environment.pk).first()
    if hosted is None:
        raise ApiError(409, "ENVIRONMENT_NOT_OURS", environment=environment.name)
    return hosted


def start_environment(user: User, environment: DevEnvironment) -> None:
    """Start the environment (member). Repeating it changes nothing."""
    hosted = _require_hosted(user, environment)
    if hosted.wanted == DesiredState.RUNNING:
        return
    _require_action(hosted, EnvironmentAction.START)
    spec = specs.load_spec(hosted.spec, 0)
    there = admission.count_host_gpus(environment, spec)
    with transaction.atomic():
        hosted = _lock_row(hosted)
        if hosted.wanted != DesiredState.STOPPED:
            return
        admission.check_admission(environment.project, environment.owner, 0, spec.gpu_count)
        admission.assign_gpus(hosted, environment.cluster_id, spec, there)
        _set_desired_state(
            hosted,
            DesiredState.RUNNING,
            None,
            asked_run=hosted.run + 1,
            active_at=now(),
            warned_at=None,
            keep_until=None,
        )
        _record_action(user, hosted, "start", "ENVIRONMENT_START_ASKED", {})


def stop_environment(user: User, environment: DevEnvironment) -> None:
    """Stop the environment (member); its disk stays. Repeating it changes nothing."""
    hosted = _require_hosted(user, environment)
    if hosted.wanted == DesiredState.STOPPED:
        return
    _require_action(hosted, EnvironmentAction.STOP)
    cause = _make_cause(EnvironmentReason.STOPPED, by=user.username)
    with _lock_for_end(environment, hosted) as locked:
        _set_desired_state(locked, DesiredState.STOPPED, cause)
        _end_run(locked, cause)
        _record_action(user, locked, "stop", "ENVIRONMENT_STOP_ASKED", {})


def restart_environment(user: User, environment: DevEnvironment) -> None:
    """Start another run, with the present sizes (member)."""
    hosted = _require_hosted(user, environment)
    _require_action(hosted, EnvironmentAction.RESTART)
    cause = _make_cause(EnvironmentReason.RESTARTED, by=user.username)
    with _lock_for_end(environment, hosted) as locked:
        _require_action(locked, EnvironmentAction.RESTART)
        changes = {"asked_run": locked.run + 1, "restart_run": locked.run}
        _set_desired_state(locked, DesiredState.RUNNING, cause, **changes)
        _end_run(locked, cause)
        _record_action(user, locked, "restart", "ENVIRONMENT_RESTART_ASKED", {})


def postpone_idle_stop(user: User, environment: DevEnvironment, hours: float) -> None:
    """Keep the environment from stopping when idle, for `hours` from now (member)."""
    hosted = _require_hosted(user, environment)
    if not 0 < hours <= MAX_KEEP_HOURS:
        raise ApiError(400, "KEEP_HOURS", "hours", found=hours, high=MAX_KEEP_HOURS)
    with transaction.atomic():
        hosted = _lock_row(hosted)
        _require_action(hosted, EnvironmentAction.KEEP)
        until = now() + timedelta(hours=hours)
        Hosted.objects.filter(pk=hosted.pk).update(keep_until=until, warned_at=None)
        resolve_incidents(hosted.pk, "environment_idle")
        _record_action(user, hosted, "keep", "ENVIRONMENT_KEEP_ASKED", {"until": until.timestamp()})


def resize_environment(user: User, environment: DevEnvironment, changes: Mapping[str, Any]) -> None:
    """Change the sizes (member): from the next start on, or at once if it does not run."""
    hosted = _require_hosted(user, environment)
    _require_action(hosted, EnvironmentAction.RESIZE)
    spec = specs.load_spec({**hosted.spec, **changes}, 0)
    resized = spec.disk_gb != hosted.spec["disk_gb"]
    if problems := check_backend(environment.cluster, spec, resized=resized):
        raise ProblemsError(problems)
    there = admission.count_host_gpus(environment, spec)
    with transaction.atomic():
        _refuse_held(environment)
        hosted = _lock_row(hosted)
        _require_action(hosted, EnvironmentAction.RESIZE)
        before = {name: hosted.spec[name] for name in changes}
        more = spec.gpu_count - hosted.spec["gpu_count"]
        if hosted.wanted == DesiredState.RUNNING and more > 0:
            admission.check_admission(environment.project, environment.owner, 0, more)
        hosted.spec = {**hosted.spec, **changes}
        Hosted.objects.filter(pk=hosted.pk).update(spec=hosted.spec)
        if EnvironmentState(hosted.state) not in STATES_WITH_RUN:
            if hosted.wanted == DesiredState.RUNNING:
                admission.assign_gpus(hosted, environment.cluster_id, spec, there)
            DevEnvironment.objects.filter(pk=hosted.pk).update(**specs.build_columns(spec))
        _record_action(user, hosted, "resize", "ENVIRONMENT_RESIZED", {}, before=before, after=dict(changes))


def delete_environment(user: User, environment: DevEnvironment) -> None:
    """Start the deletion of a managed environment and its disk (member); delete a registered one at once
    (maintainer)."""
    hosted = Hosted.objects.filter(pk=environment.pk).first()
    if hosted is None:
        clusters.delete_environment(user, environment)
        return
    access.require_role(user, environment.project_id, Role.MEMBER)
    if hosted.wanted == DesiredState.DELETED:
        return
    cause = _make_cause(EnvironmentReason.DELETED, by=user.username)
    with _lock_for_end(environment, hosted) as locked:
        _set_desired_state(locked, DesiredState.DELETED, cause)
        _end_run(locked, cause)
        _record_action(user, locked, "delete", "ENVIRONMENT_DELETE_ASKED", {})


def change_environment(user: User, environment: DevEnvironment, changes: dict[str, Any]) -> None:
    """Change what is stored of an environment; of a managed one only what does not follow from its lifecycle and
    spec."""
    follows = sorted(LIFE_COLUMNS & changes.keys())
    if follows and Hosted.objects.filter(pk=environment.pk).exists():
        raise ApiError(409, "ENVIRONMENT_FOLLOWS_ITS_LIFE", environment=environment.name)
    with transaction.atomic():
        clusters.change_environment(user, environment, changes)
        if "warm" in changes:
            standby.update_standby([environment])


def retire_environment(hosted: Hosted, desired: DesiredState, cause: Cause) -> None:
    """Stop or delete an environment that was created for a task, without a user's request. Raises
    EnvironmentInUseError."""
    with transaction.atomic():
        transitions.require_not_held(hosted.pk)
        locked = _lock_row(hosted)
        if locked.wanted != DesiredState.DELETED:
            _set_desired_state(locked, desired, cause, afterwards="")
            _end_run(locked, cause)
            transitions.wake_environment(locked.pk)


def _require_hosted(user: User, environment: DevEnvironment) -> Hosted:
    access.require_role(user, environment.project_id, Role.MEMBER)
    return get_hosted(environment)


@contextmanager
def _lock_for_end(environment: DevEnvironment, hosted: Hosted) -> Iterator[Hosted]:
    """Open a transaction in which no task can acquire the environment. Raises ApiError while one holds it."""
    with transaction.atomic():
        _refuse_held(environment)
        yield _lock_row(hosted)


def _refuse_held(environment: DevEnvironment) -> None:
    try:
        transitions.require_not_held(environment.pk)
    except transitions.EnvironmentInUseError as held:
        raise ApiError(409, "ENVIRONMENT_HELD", environment=environment.name, task=held.task) from None


def _lock_row(hosted: Hosted) -> Hosted:
    """Return the present row, locked until the transaction ends."""
    found = Hosted.objects.select_for_update().filter(pk=hosted.pk).first()
    if found is None:
        raise ApiError(404, "NOT_FOUND")
    return found


def _require_action(hosted: Hosted, action: EnvironmentAction) -> None:
    if action not in list_allowed_actions(
        EnvironmentState(hosted.state), DesiredState(hosted.wanted), stops_when_idle=True
    ):
        raise ApiError(409, "ENVIRONMENT_ACTION_NOT_ALLOWED", action=action, status=hosted.state)


def _set_desired_state(hosted: Hosted, desired: DesiredState, cause: Cause | None, **changes: Any) -> None:
    code, params = (cause.code, dict(cause.params)) if cause else ("", {})
    values = {"wanted": desired, "asked_code": code, "asked_params": params, **changes}
    Hosted.objects.filter(pk=hosted.pk).update(**values)
    for name, value in values.items():
        setattr(hosted, name, value)


def _end_run(hosted: Hosted, cause: Cause) -> None:
    """End the run, if one is alive, without waiting for a pass."""
    is_over = Run.objects.filter(environment=hosted.pk, number=hosted.run).exclude(outcome="").exists()
    if EnvironmentState(hosted.state) in (EnvironmentState.STARTING, EnvironmentState.RUNNING) and not is_over:
        transitions.end_run(hosted, cause)


def _make_cause(reason: EnvironmentReason, **params: Any) -> Cause:
    return Cause(reason, params, asked=CAUSES[reason].asked)


def _record_action(user: User, hosted: Hosted, verb: str, code: str, params: Mapping[str, Any], **told: Any) -> None:
    transitions.record_event(hosted, code, {"by": user.username, **params})
    project = DevEnvironment.objects.values_list("project_id", flat=True).get(pk=hosted.pk)
    audit.record_event(user, f"environment.{verb}", hosted.pk, project=project, **told)
    transitions.wake_environment(hosted.pk)


def finish_for_task(task_id: str) -> int:
    """Delete, stop or keep the environments of a task that has ended, once. Returns how many are left because another
    task holds them: call it again for these. Repeating it changes nothing."""
    left = 0
    cause = Cause(EnvironmentReason.TASK_ENDED, {"task": task_id}, asked=CAUSES[EnvironmentReason.TASK_ENDED].asked)
    for hosted in Hosted.objects.filter(task=task_id, afterwards__in=AFTERWARDS_CHOICES):
        wanted = _DESIRED_STATES.get(hosted.afterwards)
        if wanted is None:
            Hosted.objects.filter(pk=hosted.pk).update(afterwards="")
            continue
        try:
            retire_environment(hosted, wanted, cause)
        except EnvironmentInUseError:
            left += 1
    return left
