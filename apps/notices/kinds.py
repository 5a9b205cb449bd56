"""Kinds of incidents: their severity, who gets them, and whether they are resolved by themselves. The texts of a kind
are `NOTICE_KIND_<NAME>` in `messages/<language>/codes.toml`: `message` is its title, `hint` says when it is opened."""

from typing import NamedTuple

from apps.notices.models import IncidentLevel


class IncidentKind(NamedTuple):
    """`passes`: it is resolved by itself, which is notified too. `owner`: its owner gets it in the inbox;
    `maintainers`, `operators`: these do."""

    level: IncidentLevel
    passes: bool = False
    owner: bool = False
    maintainers: bool = False
    operators: bool = False


INCIDENT_KINDS = {
    "task_ended": IncidentKind(IncidentLevel.INFO, owner=True),
    "task_failed": IncidentKind(IncidentLevel.FAIL, owner=True),
    "task_hung": IncidentKind(IncidentLevel.WARN, passes=True, owner=True),
    "task_restarted": IncidentKind(IncidentLevel.WARN, owner=True),
    "task_waits": IncidentKind(IncidentLevel.WARN, passes=True, owner=True),
    "schedule_failed": IncidentKind(IncidentLevel.WARN, passes=True, owner=True),
    "schedule_stopped": IncidentKind(IncidentLevel.WARN, passes=True, owner=True, maintainers=True),
    "proposal": IncidentKind(IncidentLevel.INFO, owner=True),
    "budget": IncidentKind(IncidentLevel.WARN, maintainers=True),
    "node_lost": IncidentKind(IncidentLevel.FAIL, passes=True, maintainers=True, operators=True),
    "environment_idle": IncidentKind(IncidentLevel.WARN, passes=True, owner=True),
    "environment_wanted": IncidentKind(IncidentLevel.INFO, owner=True),
    "disk_full": IncidentKind(IncidentLevel.WARN, passes=True, operators=True),
    "token_ends": IncidentKind(IncidentLevel.WARN, owner=True),
    "audit_stream": IncidentKind(IncidentLevel.WARN, passes=True, operators=True),
    "certificate_ends": IncidentKind(IncidentLevel.WARN, passes=True, operators=True),
    "provider_silent": IncidentKind(IncidentLevel.WARN, passes=True, operators=True),
}
"""In the order in which they are listed. The API, the command line, the console and docs/notifications.md take the list
from here."""
LEVEL_ORDER = list(IncidentLevel.values)


def make_kind_code(kind: str) -> str:
    """Return the code of the kind's texts."""
    return f"NOTICE_KIND_{kind.upper()}"


def is_at_least(level: str, min_level: str) -> bool:
    """Return True if `level` is `min_level` or worse."""
    return LEVEL_ORDER.index(level) >= LEVEL_ORDER.index(min_level)
