"""Health of workers, from the time since their last heartbeat.

    never ─first heartbeat─▶ online ─a missed heartbeat or two─▶ suspect ─LOST─▶ lost
                               ▲────────────── the next heartbeat ────────────────┘

A worker is lost after so much silence since its last heartbeat, or since the platform began to listen if that was
later; while it does not listen no worker is lost. So after an outage of the platform all workers are suspect until
their next heartbeat.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from django.conf import settings
from django.db.models import Q

from apps.common.clock import now
from apps.workers.models import Listening

Status = Literal["online", "suspect", "lost", "never"]
STATUSES: tuple[Status, ...] = ("online", "suspect", "lost", "never")

LISTEN_INTERVAL = timedelta(seconds=2)
"""How often a web process records that it listens."""

MAX_LISTEN_GAP = 3 * LISTEN_INTERVAL
"""After so long without such a record nothing has listened."""

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """Limits of the last heartbeat's time: before `suspect_before` a worker is suspect, before `lost_before` it is
    lost."""

    suspect_before: datetime
    lost_before: datetime

    def status(self, heard_at: datetime | None) -> Status:
        """Return the status of a worker with this last heartbeat."""
        if heard_at is None:
            return "never"
        if heard_at >= self.suspect_before:
            return "online"
        return "suspect" if heard_at >= self.lost_before else "lost"

    def having(self, status: Status, path: str = "report__at") -> Q:
        """Return the condition on rows whose column `path` is the time of a worker's last heartbeat."""
        return {
            "never": Q(**{f"{path}__isnull": True}),
            "online": Q(**{f"{path}__gte": self.suspect_before}),
            "suspect": Q(**{f"{path}__gte": self.lost_before, f"{path}__lt": self.suspect_before}),
            "lost": Q(**{f"{path}__lt": self.lost_before}),
        }[status]


def read_worker_health() -> WorkerHealth:
    """Return the present limits; one query."""
    listening = Listening.objects.filter(pk=1).first()
    return compute_worker_health(
        now(), listening.since if listening else None, listening.heard_at if listening else None
    )


def compute_worker_health(moment: datetime, since: datetime | None, heard_at: datetime | None) -> WorkerHealth:
    """Return the limits at `moment`; `since`, `heard_at`: since when, and when last, a web process listened. Pure."""
    suspect, lost = (
        moment - timedelta(seconds=seconds)
        for seconds in (settings.WORKER_SUSPECT_SECONDS, settings.WORKER_LOST_SECONDS)
    )
    listened = since is not None and heard_at is not None and moment - heard_at <= MAX_LISTEN_GAP and since < lost
    return WorkerHealth(suspect, lost if listened else _LONG_AGO)
