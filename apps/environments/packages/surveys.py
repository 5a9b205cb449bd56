"""What one interpreter of an environment has installed, as it was last surveyed.

`request_surveys` returns what is known at once, and schedules the rest for the workers' threads (`run_due_survey`):
entering an environment takes up to seconds, and no page waits for that. A result is valid for VALID_FOR, and no longer
than the environment's life; an older one is returned while it is refreshed.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction

from apps.accounts import access
from apps.accounts.models import User
from apps.clusters.models import DevEnvironment
from apps.common import claims, wakeups
from apps.common.clock import now
from apps.environments import session
from apps.environments.models import Hosted, Look
from fermi.engines.inside.session import InsideSession
from fermi.planning import packages

CHANNEL = "packages"
VALID_FOR = timedelta(minutes=2)
FAILED_VALID_FOR = timedelta(seconds=20)
"""Validity of a failed survey: its reason may pass."""
CLAIM_SPAN = timedelta(seconds=60)
MAX_MODULES = packages.MAX_IMPORTS
MAX_INTERPRETERS = 8
"""Interpreters of one environment whose surveys are kept."""
MAX_PARSED = 512
MAX_PER_SWEEP = 20


@dataclass(frozen=True, slots=True)
class PackageSurvey:
    """What is known of an environment. `result`: None if nothing is; `error`: why the last survey failed; `looking`: a
    survey is under way."""

    environment: DevEnvironment
    result: packages.InstalledPackages | None = None
    error: dict[str, Any] | None = None
    looked_at: datetime | None = None
    looking: bool = False


def index_surveys(surveys: Iterable[PackageSurvey]) -> dict[str, packages.InstalledPackages]:
    """Return the surveys that found something, by environment id."""
    return {one.environment.pk: one.result for one in surveys if one.result}


def request_surveys(
    user: User, environments: Sequence[DevEnvironment], python: str = "", modules: Collection[str] = (), *,
    refresh: bool = False, may_schedule: bool = True,
) -> list[PackageSurvey]:  # fmt: skip
    """Return what is known of each environment, and schedule surveys of the others.

    `modules`: modules to look for; `refresh`: survey all anew; `may_schedule`: False to use only what is known. A user
    who may not open a terminal in an environment may not have its files executed either: for such a user a path in
    `python` is refused.
    """
    known = Look.objects.filter(environment__in=environments, python=python).defer("found")
    rows = {row.environment_id: row for row in known}
    _parse_rows(rows.values())
    lives = get_lives(environments)
    found = []
    asked = False
    for one in environments:
        if "/" in python and not access.is_member(user, one.project_id):
            error = {"code": "PACKAGES_PYTHON_FORBIDDEN", "environment": one.name, "python": python}
            found.append(PackageSurvey(one, error=error))
            continue
        row, life = rows.get(one.pk), lives[one.pk]
        due = row is not None and row.due_at is not None
        if (
            may_schedule
            and _needs_survey(row, life, modules, refresh=refresh)
            and not (due and row and set(modules) <= set(row.wanted))
        ):
            _schedule_survey(one, python, row, modules)
            due = asked = True
        found.append(_build_survey(one, row, life, looking=due))
    if asked:
        transaction.on_commit(lambda: wakeups.publish_soon(CHANNEL, {}))
    return found


def get_lives(environments: Sequence[DevEnvironment]) -> dict[str, str]:
    """Return the life of each environment as far as it is known without a survey: the run of a managed environment, or
    a container's start where its engine has looked into it."""
    runs = dict(Hosted.objects.filter(pk__in=[one.pk for one in environments]).values_list("pk", "run"))
    return {one.pk: make_life_key(str(runs.get(one.pk, "")), one.engine, one.started_at) for one in environments}


def make_life_key(run: str, engine: Any, started_at: datetime | None) -> str:
    """Return the key of an environment's life. `run`: the run's number of a managed environment, else empty."""
    inside = engine.get("inside") if isinstance(engine, dict) else None
    life = str(inside.get("life") or "") if isinstance(inside, dict) else ""
    started = started_at.isoformat() if started_at else ""
    return f"{run} {life or started}"[:200]


def _needs_survey(row: Look | None, life: str, modules: Collection[str], *, refresh: bool) -> bool:
    if row is None or refresh or row.life != life or row.looked_at is None:
        return True
    kept = FAILED_VALID_FOR if row.error else VALID_FOR
    return row.looked_at + kept < now() or not set(modules) <= set(row.wanted)


def _schedule_survey(environment: DevEnvironment, python: str, row: Look | None, modules: Collection[str]) -> None:
    """Schedule a survey."""
    moment = now()
    if row is None:
        older = Look.objects.filter(environment=environment).order_by("-asked_at").values_list("pk", flat=True)
        Look.objects.filter(pk__in=list(older[MAX_INTERPRETERS - 1 :])).delete()
        names = list(dict.fromkeys(modules))[:MAX_MODULES]
        with suppress(IntegrityError), transaction.atomic():  # another request has just asked for the first time
            Look.objects.create(environment=environment, python=python, wanted=names, asked_at=moment, due_at=moment)
        return
    names = list(dict.fromkeys([*modules, *row.wanted]))[:MAX_MODULES]
    Look.objects.filter(pk=row.pk).update(wanted=names, asked_at=moment, due_at=moment)


def _build_survey(environment: DevEnvironment, row: Look | None, life: str, *, looking: bool) -> PackageSurvey:
    if row is None or row.life != life or row.looked_at is None:
        return PackageSurvey(environment, looking=looking)
    return PackageSurvey(environment, _parsed.get((row.pk, row.looked_at)), row.error, row.looked_at, looking)


_parsed: dict[tuple[int, datetime | None], packages.InstalledPackages | None] = {}
"""Parsed results of rows, by key and time of the survey: a preview reads them on every change of a form."""


def _parse_rows(rows: Collection[Look]) -> None:
    new = {row.pk: row for row in rows if (row.pk, row.looked_at) not in _parsed}
    if not new:
        return
    if len(_parsed) + len(new) > MAX_PARSED:
        _parsed.clear()
        new = {row.pk: row for row in rows}
    for key, looked_at, found in Look.objects.filter(pk__in=new).values_list("pk", "looked_at", "found"):
        if looked_at == new[key].looked_at:
            _parsed[key, looked_at] = None if found is None else packages.parse_packages(found)


def run_due_survey() -> int:
    """Run one of the due surveys. Returns how many were run (0 or 1)."""
    rows = Look.objects.select_related("environment__cluster", "environment__zone")
    return claims.run_oldest_due(rows, MAX_PER_SWEEP, run_survey, CHANNEL)


def run_survey(row: Look) -> bool:
    """Run a survey. Returns False if another thread has it. Load the row with its environment's cluster and zone."""

    def read_packages(entered: InsideSession) -> dict[str, Any]:
        said = entered.request("survey", parts=["packages"], python=row.python, imports=row.wanted)
        return {"found": packages.parse_packages(said.get("packages")).to_json()}

    claim = claims.claim_row(row, CLAIM_SPAN)
    if claim is None:
        return False
    life = get_lives([row.environment])[row.environment_id]
    with claim.kept():
        found = session.run_in_session(row.environment, read_packages)
        if found["error"] and row.life != life:
            found["found"] = None
        claim.write(**found, life=life, looked_at=now(), due_at=None)
    return True


def invalidate_surveys(environment: DevEnvironment) -> None:
    """Schedule new surveys of the environment's interpreters, because their packages have changed."""
    moment = now()
    if Look.objects.filter(environment=environment).update(due_at=moment, asked_at=moment):
        transaction.on_commit(lambda: wakeups.publish_soon(CHANNEL, {}))
