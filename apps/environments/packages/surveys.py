"""What one interpreter of an environment has installed, as it was seen last.

`request_looks` returns what is known at once, and has the rest looked at. Threads of the workers carry out the looks
(`sweep`): entering an environment takes up to seconds, and no page waits for that. What is known counts
for KEPT, and no longer than the environment's life; what is older is shown while it is looked at anew.
"""

from collections.abc import Collection, Sequence
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
from fermi.engines.inside.session import Session
from fermi.planning import packages

CHANNEL = "packages"
KEPT = timedelta(minutes=2)
FAILED_KEPT = timedelta(seconds=20)
"""Of a look that found nothing: what kept it may pass."""
CLAIM = timedelta(seconds=60)
MAX_WANTED = packages.MAX_IMPORTS
MAX_ROWS = 8
"""Interpreters of one environment."""
MAX_PARSED = 512
AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of an environment. `found`: None where nothing is; `error`: why the last look found nothing;
    `looking`: it is being looked at."""

    environment: DevEnvironment
    found: packages.Look | None = None
    error: dict[str, Any] | None = None
    looked_at: datetime | None = None
    looking: bool = False


def request_looks(
    user: User, environments: Sequence[DevEnvironment], python: str = "", wanted: Collection[str] = (), *,
    anew: bool = False, look: bool = True,
) -> list[Seen]:  # fmt: skip
    """Returns what is known of each, and has looked at what is not. `wanted`: modules that are to be looked for;
    `anew`: however much is known; `look`: False where what is known has to do. Whoever may not open a terminal in an
    environment may not have its files executed either: there a path in `python` is refused."""
    known = Look.objects.filter(environment__in=environments, python=python).defer("found")
    rows = {row.environment_id: row for row in known}
    _remember(rows.values())
    lives = life_of(environments)
    found = []
    asked = False
    for one in environments:
        if "/" in python and not access.is_member(user, one.project_id):
            error = {"code": "PACKAGES_PYTHON_FORBIDDEN", "environment": one.name, "python": python}
            found.append(Seen(one, error=error))
            continue
        row, life = rows.get(one.pk), lives[one.pk]
        due = row is not None and row.due_at is not None
        if look and _is_wanted(row, life, wanted, anew=anew) and not (due and row and set(wanted) <= set(row.wanted)):
            _want(one, python, row, wanted)
            due = asked = True
        found.append(_seen(one, row, life, looking=due))
    if asked:
        transaction.on_commit(lambda: wakeups.tell(CHANNEL, {}))
    return found


def life_of(environments: Sequence[DevEnvironment]) -> dict[str, str]:
    """Returns which life each of them is in, as far as that is known without a look: a run of one that the platform
    made, a container's of one that its engine has looked into."""
    runs = dict(Hosted.objects.filter(pk__in=[one.pk for one in environments]).values_list("pk", "run"))
    return {one.pk: life_in(str(runs.get(one.pk, "")), one.engine, one.started_at) for one in environments}


def life_in(run: str, engine: Any, started_at: datetime | None) -> str:
    """Returns which life an environment is in. `run`: its number, of one that the platform made."""
    inside = engine.get("inside") if isinstance(engine, dict) else None
    life = str(inside.get("life") or "") if isinstance(inside, dict) else ""
    started = started_at.isoformat() if started_at else ""
    return f"{run} {life or started}"[:200]


def _is_wanted(row: Look | None, life: str, wanted: Collection[str], *, anew: bool) -> bool:
    if row is None or anew or row.life != life or row.looked_at is None:
        return True
    kept = FAILED_KEPT if row.error else KEPT
    return row.looked_at + kept < now() or not set(wanted) <= set(row.wanted)


def _want(environment: DevEnvironment, python: str, row: Look | None, wanted: Collection[str]) -> None:
    """Has it looked at as soon as a thread is free."""
    moment = now()
    if row is None:
        older = Look.objects.filter(environment=environment).order_by("-asked_at").values_list("pk", flat=True)
        Look.objects.filter(pk__in=list(older[MAX_ROWS - 1 :])).delete()
        names = list(dict.fromkeys(wanted))[:MAX_WANTED]
        with suppress(IntegrityError), transaction.atomic():  # another request has just asked for the first time
            Look.objects.create(environment=environment, python=python, wanted=names, asked_at=moment, due_at=moment)
        return
    names = list(dict.fromkeys([*wanted, *row.wanted]))[:MAX_WANTED]
    Look.objects.filter(pk=row.pk).update(wanted=names, asked_at=moment, due_at=moment)


def _seen(environment: DevEnvironment, row: Look | None, life: str, *, looking: bool) -> Seen:
    if row is None or row.life != life or row.looked_at is None:
        return Seen(environment, looking=looking)
    return Seen(environment, _parsed.get((row.pk, row.looked_at)), row.error, row.looked_at, looking)


_parsed: dict[tuple[int, datetime | None], packages.Look | None] = {}
"""What rows have found, by their keys and the time of the look: a preview asks for it at every change of a form."""


def _remember(rows: Collection[Look]) -> None:
    new = {row.pk: row for row in rows if (row.pk, row.looked_at) not in _parsed}
    if not new:
        return
    if len(_parsed) + len(new) > MAX_PARSED:
        _parsed.clear()
        new = {row.pk: row for row in rows}
    for key, looked_at, found in Look.objects.filter(pk__in=new).values_list("pk", "looked_at", "found"):
        if looked_at == new[key].looked_at:
            _parsed[key, looked_at] = None if found is None else packages.read(found)


def sweep() -> int:
    """Carries out one of the looks that are due; returns how many it was."""
    rows = Look.objects.select_related("environment__cluster", "environment__zone")
    return claims.carry_out_one(rows, AT_ONCE, carry_out, CHANNEL)


def carry_out(row: Look) -> bool:
    """False: another thread has it. Load it with its environment's cluster and zone."""

    def look(entered: Session) -> dict[str, Any]:
        said = entered.ask("survey", parts=["packages"], python=row.python, imports=row.wanted)
        return {"found": packages.read(said.get("packages")).to_json()}

    claim = claims.claim_row(row, CLAIM)
    if claim is None:
        return False
    life = life_of([row.environment])[row.environment_id]
    with claim.kept():
        found = session.enter_and_ask(row.environment, look)
        if found["error"] and row.life != life:
            found["found"] = None
        claim.write(**found, life=life, looked_at=now(), due_at=None)
    return True


def forget(environment: DevEnvironment) -> None:
    """Has its interpreters looked at anew, because what they have has changed."""
    moment = now()
    if Look.objects.filter(environment=environment).update(due_at=moment, asked_at=moment):
        transaction.on_commit(lambda: wakeups.tell(CHANNEL, {}))
