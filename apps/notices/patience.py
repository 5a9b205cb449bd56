"""From which length on a task's wait is notified."""

from collections import defaultdict

from apps.notices.models import Rule

DEFAULT_WAIT_SECONDS = 3600
"""Seconds; a rule with another length is notified at that one."""


class WaitThresholds:
    """The lengths in the present rules; one query."""

    def __init__(self) -> None:
        self._lengths: defaultdict[tuple[int | None, str | None], set[int]] = defaultdict(set)
        rows = Rule.objects.filter(enabled=True, waits_seconds__gt=0)
        for user, project, kinds, seconds in rows.values_list("user", "project", "kinds", "waits_seconds"):
            if seconds and (not kinds or "task_waits" in kinds):
                self._lengths[user, project].add(seconds)

    def reached(self, project: str, owner: int, seconds: float) -> int:
        """Return the greatest length that a wait of `seconds` has reached, of the rules that apply to this owner's
        tasks in this project; 0 if none."""
        scopes = ((None, None), (None, project), (owner, None))
        lengths = {DEFAULT_WAIT_SECONDS}.union(*(self._lengths.get(scope, ()) for scope in scopes))
        return max((length for length in lengths if length <= seconds), default=0)
