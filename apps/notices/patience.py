"""From when on it is worth a word that a task waits."""

from collections import defaultdict

from apps.notices.models import Rule

LONG = 3600
"""Seconds; whoever has a rule that says another length is told then."""


class Patience:
    """As the rules are now; one query."""

    def __init__(self) -> None:
        self._lengths: defaultdict[tuple[int | None, str | None], set[int]] = defaultdict(set)
        rows = Rule.objects.filter(enabled=True, waits_seconds__gt=0)
        for user, project, kinds, seconds in rows.values_list("user", "project", "kinds", "waits_seconds"):
            if seconds and (not kinds or "task_waits" in kinds):
                self._lengths[user, project].add(seconds)

    def reached(self, project: str, owner: int, seconds: float) -> int:
        """The greatest length that a wait of so many seconds has reached, of those that somebody goes by who hears of
        this owner's tasks in this project; 0: none."""
        scopes = ((None, None), (None, project), (owner, None))
        lengths = {LONG}.union(*(self._lengths.get(scope, ()) for scope in scopes))
        return max((length for length in lengths if length <= seconds), default=0)
