"""Warm environments: a process with the training stack imported waits in each, so that an attempt starts there within a
second (`fermi.runner.standby`).

It is started when a user previews or submits a task, after a task ended there, and when a user switches it on; it ends
by itself after FERMI_WARM_MINUTES without a request, which frees its memory. In between, its last status is shown
without asking. The workers' threads carry out what is due (`run_due_check`), as they do surveys of packages.
"""

from collections.abc import Iterable, Mapping, Sequence
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
from apps.common.nested_texts import said
from apps.environments import session
from apps.environments.models import Standby
from apps.environments.packages import surveys
from fermi.engines import standby as inside
from fermi.engines.inside.session import Session
from fermi.jobs.errors import UnknownName
from fermi.planning import plugins

CHANNEL = "standby"
KEPT = timedelta(minutes=2)
FAILED_KEPT = timedelta(seconds=20)
CLAIM = timedelta(seconds=60)
AGAIN = timedelta(seconds=5)
"""Pause before a process that is still importing is checked again."""
IMPORT_PATIENCE = timedelta(minutes=5)
AT_ONCE = 20
OFF, ENGINE, UNAVAILABLE, IDLE = "off", "engine", "unavailable", "idle"
STATES = (OFF, ENGINE, UNAVAILABLE, IDLE, inside.IMPORTING, inside.STANDING, inside.FAILED)
IN_ENVIRONMENT = "environment"
LOCAL = "local"
"""The engine whose standby process is the platform's own (FERMI_STAND_BY)."""


def is_wanted(environment: DevEnvironment) -> bool:
    """Return True if the environment is to be warm. Load it with its project."""
    return environment.project.warm if environment.warm is None else environment.warm


def offered(backend: str, image: str) -> str:
    """Return where the training stack waits for the ranks of an environment of this engine: in the `environment`, in a
    process of the `engine`, or nowhere ("")."""
    with suppress(UnknownName):
        return plugins.check(backend).standby(image)
    return ""


def request(environments: Iterable[DevEnvironment]) -> None:
    """Have a standby process in each of the environments that is to be warm. Load them with their clusters; their
    projects are loaded where needed."""
    wanted = [
        one for one in environments if is_wanted(one) and offered(one.cluster.backend, one.image) == IN_ENVIRONMENT
    ]
    if wanted:
        _request(wanted)


def _request(wanted: Sequence[DevEnvironment]) -> None:
    rows = {row.environment_id: row for row in Standby.objects.filter(environment__in=wanted)}
    lives, moment, due = surveys.life_of(wanted), now(), list[str]()
    for one in wanted:
        row = rows.get(one.pk)
        if row is None:
            with suppress(IntegrityError), transaction.atomic():  # another request has just asked for the first time
                Standby.objects.create(environment=one, asked_at=moment, due_at=moment)
                due.append(one.pk)
        elif row.due_at is None and _is_old(row, lives[one.pk]):
            due.append(one.pk)
    if due:
        Standby.objects.filter(pk__in=due, due_at=None).update(asked_at=moment, due_at=moment)
        _hint()


def _is_old(row: Standby, life: str) -> bool:
    kept = FAILED_KEPT if row.error else KEPT
    return row.life != life or row.state == inside.OFF or row.looked_at is None or row.looked_at + kept < now()


def settle(environments: Iterable[DevEnvironment]) -> None:
    """Start or end standby processes after a user switched them, in the caller's transaction. Load the environments
    with their clusters and projects."""
    listed = [one for one in environments if offered(one.cluster.backend, one.image) == IN_ENVIRONMENT]
    wanted = [one for one in listed if is_wanted(one) and one.status == EnvironmentStatus.RUNNING]
    others = {one.pk for one in listed} - {one.pk for one in wanted}
    if wanted:
        _request(wanted)
    if others and Standby.objects.filter(pk__in=others).exclude(state=inside.OFF).update(asked_at=now(), due_at=now()):
        _hint()


@transaction.atomic
def switch_project(user: User, project: Project, warm: bool) -> None:
    """Switch standby for the project's environments that do not set it themselves (maintainer)."""
    access.require(user, project, Role.MAINTAINER)
    if project.warm == warm:
        return
    Project.objects.filter(pk=project.pk).update(warm=warm)
    project.warm = warm
    audit.record(user, "project.warm", project.pk, project=project, warm=warm)
    settle(DevEnvironment.objects.filter(project=project, warm=None).select_related("cluster", "project"))


def _hint() -> None:
    transaction.on_commit(lambda: wakeups.tell(CHANNEL, {}))


def sweep() -> int:
    """Run one of the due checks. Returns how many were run (0 or 1)."""
    rows = Standby.objects.select_related("environment__cluster", "environment__zone", "environment__project")
    return claims.carry_out_one(rows, AT_ONCE, carry_out, CHANNEL)


def carry_out(row: Standby) -> bool:
    """Start, renew or end a standby process. Returns False if another thread has it. Load the row with its
    environment's cluster, zone and project."""
    environment = row.environment

    def keep(entered: Session) -> dict[str, Any]:
        told = inside.keep(entered, plugins.framework(plugins.DEFAULT).preload, seconds)
        error = {"environment": environment.name, **told.error} if told.error else None
        return {"state": told.state, "memory": told.memory, "error": error}

    claim = claims.claim_row(row, CLAIM)
    if claim is None:
        return False
    life = surveys.life_of([environment])[environment.pk]
    seconds = settings.WARM_MINUTES * 60 if is_wanted(environment) else 0
    with claim.kept():
        found = {"state": inside.FAILED, "memory": None, "until": None, **session.enter_and_ask(environment, keep)}
        moment = now()
        if found["state"] == inside.STANDING:
            found["until"] = moment + timedelta(seconds=seconds)
        again = found["state"] == inside.IMPORTING and row.asked_at + IMPORT_PATIENCE > moment
        claim.write(**found, life=life, looked_at=moment, due_at=moment + AGAIN if again else None)
    return True


def attach(items: Iterable[dict[str, Any]]) -> None:
    """Add `standby` to each environment of a list, in two queries at most, however many there are."""
    wanted = []
    for item in items:
        is_on = item["projectWarm"] if item["warm"] is None else item["warm"]
        del item["projectWarm"]
        where = offered(item["backend"], item["image"])
        item["standby"] = _shown(OFF if not is_on else ENGINE if where == ENGINE else UNAVAILABLE, is_on)
        if is_on and not where:
            item["standby"]["reason"] = _reason({"code": "STANDBY_NOT_OFFERED", "environment": item["name"]})
        elif is_on and item["backend"] == LOCAL and not settings.STAND_BY:
            switched_off = _reason({"code": "STANDBY_SWITCHED_OFF", "environment": item["name"]})
            item["standby"] |= {"state": UNAVAILABLE, "reason": switched_off}
        elif is_on and where == IN_ENVIRONMENT:
            wanted.append(item)
    if not wanted:
        return
    keys = [item["id"] for item in wanted]
    rows = {row.pk: row for row in Standby.objects.filter(pk__in=keys).select_related("environment")}
    lives = surveys.life_of([row.environment for row in rows.values()])
    for item in wanted:
        item["standby"] = _of_row(rows.get(item["id"]), lives.get(item["id"], ""), item["status"])


def _of_row(row: Standby | None, life: str, status: str) -> dict[str, Any]:
    if row is None or status != EnvironmentStatus.RUNNING or row.life != life:
        return _shown(inside.IMPORTING if row and row.due_at and row.looked_at is None else IDLE, True)
    if row.state == inside.STANDING and (row.until is None or row.until <= now()):
        return _shown(IDLE, True)
    state = IDLE if row.state == inside.OFF else row.state
    shown = _shown(state, True)
    if state == inside.STANDING:
        shown |= {"memoryBytes": row.memory, "until": row.until}
    if row.error:
        shown["reason"] = _reason(row.error)
    return shown


def _shown(state: str, is_wanted: bool) -> dict[str, Any]:
    return {"isWanted": is_wanted, "state": state, "memoryBytes": None, "until": None, "reason": None}


def _reason(error: Mapping[str, Any]) -> dict[str, str]:
    params = {name: value for name, value in error.items() if name != "code"}
    message, hint = said(error["code"], params, None)
    return {"code": error["code"], "message": message, "hint": hint}
