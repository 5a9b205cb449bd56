"""Who holds memory in environments whose engine does not report it by itself: dev pods, users' allocations.

`request_surveys` returns what is known at once, and schedules the rest for the workers' threads (`run_due_survey`):
entering an environment takes up to seconds, and no page waits for that. A result is valid for VALID_FOR, and no longer
than the environment's life. Managed environments report through their daemons (`Hosted.seen`).
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction

from apps.clusters.models import DevEnvironment, EnvironmentStatus
from apps.common import claims, wakeups
from apps.common.clock import now
from apps.common.sql import CompiledQuery, columns
from apps.environments import session
from apps.environments.models import MemoryLook
from apps.environments.packages.surveys import life_in, life_of
from fermi.engines import memory_holders
from fermi.engines.inside.session import Session

CHANNEL = "memory"
KEPT = timedelta(seconds=15)
FAILED_KEPT = timedelta(seconds=60)
"""Validity of a failed survey: its reason may pass."""
CLAIM = timedelta(seconds=60)
AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of an environment. `found`: as `fermi.engines.memory_holders.read` returns it; None: nothing is
    known. `looking`: a survey is under way, because the result is too old or from an earlier life."""

    environment: str
    name: str
    project: str
    owner: int | None
    owner_name: str | None
    found: dict[str, Any] | None
    error: dict[str, Any] | None
    looking: bool


_LOOK = {name: f"memory_look__{name}" for name in ("found", "error", "life", "looked_at", "due_at")}
_DISCOVERED = CompiledQuery(
    lambda **among: (
        DevEnvironment.objects.filter(
            pk__in=list(among.values()), status=EnvironmentStatus.RUNNING, hosted__isnull=True
        )
        .exclude(discovered_as="")
        .order_by("name")
    ),
    columns(DevEnvironment, "pk", "name", "project", "owner", "engine", "started_at", "owner__username",
            *_LOOK.values()),
)  # fmt: skip


def request(among: Mapping[str, str]) -> list[Seen]:
    """Return what is known of those environments that can be entered, and schedule surveys of the others; `key_params`:
    as `sql.make_key_parameters` makes it."""
    moment, found, asked = now(), list[Seen](), False
    for row in _DISCOVERED.fetch(**among):
        row |= {name: row[path] for name, path in _LOOK.items()}
        engine = row["engine"] if isinstance(row["engine"], dict) else {}
        if (engine.get("inside") or {}).get("why"):
            continue
        known = row["looked_at"] is not None and row["life"] == life_in("", engine, row["started_at"])
        fresh = known and row["looked_at"] + (FAILED_KEPT if row["error"] else KEPT) >= moment
        if not fresh and row["due_at"] is None:
            _want(row["pk"])
            asked = True
        found.append(Seen(
            row["pk"], row["name"], row["project"], row["owner"], row["owner__username"],
            row["found"] if known else None,
            row["error"] if known else None, not fresh or row["due_at"] is not None,
        ))  # fmt: skip
    if asked:
        transaction.on_commit(lambda: wakeups.tell(CHANNEL, {}))
    return found


def forget(environment: DevEnvironment) -> None:
    """Schedule a new survey, because something has changed."""
    _want(environment.pk)
    transaction.on_commit(lambda: wakeups.tell(CHANNEL, {}))


def _want(key: str) -> None:
    moment = now()
    if not MemoryLook.objects.filter(pk=key).update(asked_at=moment, due_at=moment):
        with suppress(IntegrityError), transaction.atomic():  # another request has just asked for the first time
            MemoryLook.objects.create(environment_id=key, asked_at=moment, due_at=moment)


def sweep() -> int:
    """Run one of the due surveys. Returns how many were run (0 or 1)."""
    rows = MemoryLook.objects.select_related("environment__cluster", "environment__zone")
    return claims.carry_out_one(rows, AT_ONCE, carry_out, CHANNEL)


def carry_out(row: MemoryLook) -> bool:
    """Run a survey. Returns False if another thread has it. Load the row with its environment's cluster and zone."""
    claim = claims.claim_row(row, CLAIM)
    if claim is None:
        return False
    life = life_of([row.environment])[row.environment_id]
    with claim.kept():
        found = {"found": None, **session.enter_and_ask(row.environment, _look)}
        claim.write(**found, life=life, looked_at=now(), due_at=None)
    return True


def _look(entered: Session) -> dict[str, Any]:
    return {"found": memory_holders.read(entered.ask("survey", parts=["holders"]).get("holders"))}
