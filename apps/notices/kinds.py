"""Kinds of incidents: their severity, who gets them, and whether they are resolved by themselves."""

from typing import NamedTuple

from apps.notices.models import Level


class Kind(NamedTuple):
    """`passes`: it is resolved by itself, which is notified too. `owner`: its owner gets it in the inbox;
    `maintainers`, `operators`: these do."""

    level: Level
    passes: bool = False
    owner: bool = False
    maintainers: bool = False
    operators: bool = False


KINDS = {
    "task_ended": Kind(Level.INFO, owner=True),
    "task_failed": Kind(Level.FAIL, owner=True),
    "task_hung": Kind(Level.WARN, passes=True, owner=True),
    "task_restarted": Kind(Level.WARN, owner=True),
    "task_waits": Kind(Level.WARN, passes=True, owner=True),
    "budget": Kind(Level.WARN, maintainers=True),
    "node_lost": Kind(Level.FAIL, passes=True, maintainers=True, operators=True),
    "environment_idle": Kind(Level.WARN, passes=True, owner=True),
    "environment_wanted": Kind(Level.INFO, owner=True),
    "disk_full": Kind(Level.WARN, passes=True, operators=True),
    "token_ends": Kind(Level.WARN, owner=True),
    "certificate_ends": Kind(Level.WARN, passes=True, operators=True),
}
ORDER = list(Level.values)


def at_least(level: str, least: str) -> bool:
    """Return True if `level` is `min_level` or worse."""
    return ORDER.index(level) >= ORDER.index(least)
