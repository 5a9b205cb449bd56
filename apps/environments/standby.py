"""Warm environments: a process with the training stack imported waits in each, so that an attempt starts there within a
second (`fermi.runner.standby`).

It is started when a user previews or submits a task, after a task ended there, and when a user switches it on; it ends
by itself after FERMI_WARM_MINUTES without a request, which frees its memory. In between, its last status is shown
without asking. The workers' threads carry out what is due (`run_due_check`), as they do surveys of packages.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction

from apps.accounts import access, audit
from apps.accounts.models import Project, Role, User
from apps.clusters.models import DevEnvironment, EnvironmentStatus
from apps.common import claims, wakeups
from apps.common.clock import now
from apps.common.texts import serialize_error
from apps.environments import session
from apps.environments.models import Standby
from apps.environments.packages import surveys
from fermi.engines import standby
from fermi.engines.inside.session import InsideSession
from fermi.jobs.errors import UnknownNameError
from fermi.planning import plugins

CHANNEL = "standby"
VALID_FOR = timedelta(minutes=2)
FAILED_VALID_FOR = timedelta(seconds=20)
CLAIM_SPAN = timedelta(seconds=60)
RETRY_DELAY = timedelta(seconds=5)
"""Pause before a process that is still importing is checked again."""
MAX_IMPORT_TIME = timedelta(minutes=5)
MAX_PER_SWEEP = 20
OFF, ENGINE, UNAVAILABLE, IDLE = "off", "engine", "unavailable", "idle"
STATES = (OFF, ENGINE, UNAVAILABLE, IDLE, standby.IMPORTING, standby.STANDING, standby.FAILED)
IN_ENVIRONMENT = "environment"
LOCAL_BACKEND = "local"
"""The engine whose standby process is the platform's own (FERMI_STAND_BY)."""


def is_enabled(environment: DevEnvironment) -> bool:
    """Return True if the environment is to be warm. Load it with its project."""
    return environment.project.warm if environment.warm is None else environment.warm


def get_standby_place(backend: str, image: str) -> str:
    """Return where the training stack waits for the ranks of an environment of this engine: in the `environment`, in a
    process of the `engine`, or nowhere ("")."""
    with suppress(UnknownNameError):
        return plugins.get_check(backend).standby(image)
    return ""


def request_standby(environments: Iterable[DevEnvironment]) -> None:
    """Have a standby process in each of the environments that is to be warm. Load them with their clusters; their
    projects are loaded where needed."""
    wanted = [
        one
        for one in environments
        if is_enabled(one) and get_standby_place(one.cluster.backend, one.image) == IN_ENVIRONMENT
    ]
    if wanted:
        _schedule_checks(wanted)


def _schedule_checks(environments: Sequence[DevEnvironment]) -> None:
    rows = {row.environment_id: row for row in Standby.objects.filter(environment__in=environments)}
    lives, moment, due = surveys.get_lives(environments), now(), list[str]()
    for one in environments:
        row = rows.get(one.pk)
        if row is None:
            with suppress(IntegrityError), transaction.atomic():  # another request has just asked for the first time
                Standby.objects.create(environment=one, asked_at=moment, due_at=moment)
                due.append(one.pk)
        elif row.due_at is None and _is_outdated(row, lives[one.pk]):
            due.append(one.pk)
    if due:
        Standby.objects.filter(pk__in=due, due_at=None).update(asked_at=moment, due_at=moment)
        _wake_threads()


def _is_outdated(row: Standby, life: str) -> bool:
    kept = FAILED_VALID_FOR if row.error else VALID_FOR
    return row.life != life or row.state == standby.OFF or row.looked_at is None or row.looked_at + kept < now()


def update_standby(environments: Iterable[DevEnvironment]) -> None:
    """Start or end standby processes after a user switched them, in the caller's transaction. Load the environments
    with their clusters and projects."""
    listed = [one for one in environments if get_standby_place(one.cluster.backend, one.image) == IN_ENVIRONMENT]
    wanted = [one for one in listed if is_enabled(one) and one.status == EnvironmentStatus.RUNNING]
    others = {one.pk for one in listed} - {one.pk for one in wanted}
    if wanted:
        _schedule_checks(wanted)
    if others and Standby.objects.filter(pk__in=others).exclude(state=standby.OFF).update(asked_at=now(), due_at=now()):
        _wake_threads()


@transaction.atomic
def switch_project(user: User, project: Project, warm: bool) -> None:
    """Switch standby for the project's environments that do not set it themselves (maintainer)."""
    access.require_role(user, project, Role.MAINTAINER)
    if project.warm == warm:
        return
    Project.objects.filter(pk=project.pk).update(warm=warm)
    project.warm = warm
    audit.record_event(user, "project.warm", project.pk, project=project, warm=warm)
    update_standby(DevEnvironment.objects.filter(project=project, warm=None).select_related("cluster", "project"))


def _wake_threads() -> None:
    transaction.on_commit(lambda: wakeups.publish_soon(CHANNEL, {}))


def run_due_check() -> int:
    """Run one of the due checks. Returns how many were run (0 or 1)."""
    rows = Standby.objects.select_related("environment__cluster", "environment__zone", "environment__project")
    return claims.run_oldest_due(rows, MAX_PER_SWEEP, run_check, CHANNEL)


def run_check(row: Standby) -> bool:
    """Start, renew or end a standby process. Returns False if another thread has it. Load the row with its
    environment's cluster, zone and project."""
    environment = row.environment

    def keep(entered: InsideSession) -> dict[str, Any]:
        told = standby.request_standby(entered, plugins.get_framework(plugins.DEFAULT_FRAMEWORK).preload, seconds)
        error = {"environment": environment.name, **told.error} if told.error else None
        return {"state": told.state, "memory": told.memory, "error": error}

    claim = claims.claim_row(row, CLAIM_SPAN)
    if claim is None:
        return False
    life = surveys.get_lives([environment])[environment.pk]
    seconds = settings.WARM_MINUTES * 60 if is_enabled(environment) else 0
    with claim.kept():
        found = {"state": standby.FAILED, "memory": None, "until": None, **session.run_in_session(environment, keep)}
        moment = now()
        if found["state"] == standby.STANDING:
            found["until"] = moment + timedelta(seconds=seconds)
        again = found["state"] == standby.IMPORTING and row.asked_at + MAX_IMPORT_TIME > moment
        claim.write(**found, life=life, looked_at=moment, due_at=moment + RETRY_DELAY if again else None)
    return True


def attach_standby(items: Iterable[dict[str, Any]]) -> None:
    """Add `standby` to each environment of a list, in two queries at most, however many there are."""
    wanted = []
    for item in items:
        is_on = item["projectWarm"] if item["warm"] is None else item["warm"]
        del item["projectWarm"]
        where = get_standby_place(item["backend"], item["image"])
        item["standby"] = _build_standby(OFF if not is_on else ENGINE if where == ENGINE else UNAVAILABLE, is_on)
        if is_on and not where:
            item["standby"]["reason"] = serialize_error({"code": "STANDBY_NOT_OFFERED", "environment": item["name"]})
        elif is_on and item["backend"] == LOCAL_BACKEND and not settings.STAND_BY:
            switched_off = serialize_error({"code": "STANDBY_SWITCHED_OFF", "environment": item["name"]})
            item["standby"] |= {"state": UNAVAILABLE, "reason": switched_off}
        elif is_on and where == IN_ENVIRONMENT:
            wanted.append(item)
    if not wanted:
        return
    keys = [item["id"] for item in wanted]
    rows = {row.pk: row for row in Standby.objects.filter(pk__in=keys).select_related("environment")}
    lives = surveys.get_lives([row.environment for row in rows.values()])
    for item in wanted:
        item["standby"] = _serialize_row(rows.get(item["id"]), lives.get(item["id"], ""), item["status"])


def _serialize_row(row: Standby | None, life: str, status: str) -> dict[str, Any]:
    if row is None or status != EnvironmentStatus.RUNNING or row.life != life:
        return _build_standby(standby.IMPORTING if row and row.due_at and row.looked_at is None else IDLE, True)
    if row.state == standby.STANDING and (row.until is None or row.until <= now()):
        return _build_standby(IDLE, True)
    state = IDLE if row.state == standby.OFF else row.state
    shown = _build_standby(state, True)
    if state == standby.STANDING:
        shown |= {"memoryBytes": row.memory, "until": row.until}
    if row.error:
        shown["reason"] = serialize_error(row.error)
    return shown


def _build_standby(state: str, is_wanted: bool) -> dict[str, Any]:
    return {"isWanted": is_wanted, "state": state, "memoryBytes": None, "until": None, "reason": None}
