"""Kinds of incidents: their severity, who gets them, and whether they are resolved by themselves."""

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
    "budget": IncidentKind(IncidentLevel.WARN, maintainers=True),
    "node_lost": IncidentKind(IncidentLevel.FAIL, passes=True, maintainers=True, operators=True),
    "environment_idle": IncidentKind(IncidentLevel.WARN, passes=True, owner=True),
    "environment_wanted": IncidentKind(IncidentLevel.INFO, owner=True),
    "disk_full": IncidentKind(IncidentLevel.WARN, passes=True, operators=True),
    "token_ends": IncidentKind(IncidentLevel.WARN, owner=True),
    "certificate_ends": IncidentKind(IncidentLevel.WARN, passes=True, operators=True),
}
LEVEL_ORDER = list(IncidentLevel.values)


def is_at_least(level: str, min_level: str) -> bool:
    """Return True if `level` is `min_level` or worse."""
    return LEVEL_ORDER.index(level) >= LEVEL_ORDER.index(min_level)
