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
from apps.common.sql import CompiledQuery, list_columns
from apps.environments import session
from apps.environments.models import MemoryLook
from apps.environments.packages.surveys import get_lives, make_life_key
from fermi.engines import memory_holders
from fermi.engines.inside.session import InsideSession

CHANNEL = "memory"
VALID_FOR = timedelta(seconds=15)
FAILED_VALID_FOR = timedelta(seconds=60)
"""Validity of a failed survey: its reason may pass."""
CLAIM_SPAN = timedelta(seconds=60)
MAX_PER_SWEEP = 20


@dataclass(frozen=True, slots=True)
class MemorySurvey:
    """What is known of an environment. `result`: as `fermi.engines.memory_holders.parse_holders` returns it; None:
    nothing is known. `looking`: a survey is under way, because the result is too old or from an earlier life."""

    environment: str
    name: str
    project: str
    owner: int | None
    owner_name: str | None
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    looking: bool


_LOOK = {name: f"memory_look__{name}" for name in ("found", "error", "life", "looked_at", "due_at")}
_DISCOVERED_QUERY = CompiledQuery(
    lambda **among: (
        DevEnvironment.objects.filter(
            pk__in=list(among.values()), status=EnvironmentStatus.RUNNING, hosted__isnull=True
        )
        .exclude(discovered_as="")
        .order_by("name")
    ),
    list_columns(DevEnvironment, "pk", "name", "project", "owner", "engine", "started_at", "owner__username",
            *_LOOK.values()),
)  # fmt: skip


def request_surveys(key_params: Mapping[str, str]) -> list[MemorySurvey]:
    """Return what is known of those environments that can be entered, and schedule surveys of the others; `key_params`:
    as `sql.make_key_parameters` makes it."""
    moment, found, asked = now(), list[MemorySurvey](), False
    for row in _DISCOVERED_QUERY.fetch(**key_params):
        row |= {name: row[path] for name, path in _LOOK.items()}
        engine = row["engine"] if isinstance(row["engine"], dict) else {}
        if (engine.get("inside") or {}).get("why"):
            continue
        known = row["looked_at"] is not None and row["life"] == make_life_key("", engine, row["started_at"])
        fresh = known and row["looked_at"] + (FAILED_VALID_FOR if row["error"] else VALID_FOR) >= moment
        if not fresh and row["due_at"] is None:
            _schedule_survey(row["pk"])
            asked = True
        found.append(MemorySurvey(
            row["pk"], row["name"], row["project"], row["owner"], row["owner__username"],
            row["found"] if known else None,
            row["error"] if known else None, not fresh or row["due_at"] is not None,
        ))  # fmt: skip
    if asked:
        transaction.on_commit(lambda: wakeups.publish_soon(CHANNEL, {}))
    return found


def invalidate_survey(environment: DevEnvironment) -> None:
    """Schedule a new survey, because something has changed."""
    _schedule_survey(environment.pk)
    transaction.on_commit(lambda: wakeups.publish_soon(CHANNEL, {}))


def _schedule_survey(key: str) -> None:
    moment = now()
    if not MemoryLook.objects.filter(pk=key).update(asked_at=moment, due_at=moment):
        with suppress(IntegrityError), transaction.atomic():  # another request has just asked for the first time
            MemoryLook.objects.create(environment_id=key, asked_at=moment, due_at=moment)


def run_due_survey() -> int:
    """Run one of the due surveys. Returns how many were run (0 or 1)."""
    rows = MemoryLook.objects.select_related("environment__cluster", "environment__zone")
    return claims.run_oldest_due(rows, MAX_PER_SWEEP, run_survey, CHANNEL)


def run_survey(row: MemoryLook) -> bool:
    """Run a survey. Returns False if another thread has it. Load the row with its environment's cluster and zone."""
    claim = claims.claim_row(row, CLAIM_SPAN)
    if claim is None:
        return False
    life = get_lives([row.environment])[row.environment_id]
    with claim.kept():
        found = {"found": None, **session.run_in_session(row.environment, _read_holders)}
        claim.write(**found, life=life, looked_at=now(), due_at=None)
    return True


def _read_holders(entered: InsideSession) -> dict[str, Any]:
    return {"found": memory_holders.parse_holders(entered.request("survey", parts=["holders"]).get("holders"))}
