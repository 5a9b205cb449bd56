"""Tells whether watchers observe everything that runs, so that the reconciler need not.

Each watcher writes with its heartbeat when it began its last complete scan (`logs.sharding`). A scan counts for a
limited time by this process's own clock, so the clocks of two machines are never compared.
"""

import time
from collections.abc import Callable, Mapping
from datetime import timedelta


class WatcherHeartbeats:
    """Last scans of all watchers, as this process learnt of them. `clock`: monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._news: dict[str, tuple[float, float]] = {}  # by watcher: its last look, and since when that is known

    def have_all_looked(self, members: Mapping[str, int], looked: Mapping[str, float], patience: timedelta) -> bool:
        """Return True if each of `members` reported a new scan within `patience`."""
        moment, before = self._clock(), self._news
        self._news = {
            who: before[who] if who in before and before[who][0] == at else (at, moment)
            for who in members
            if (at := looked.get(who))
        }
        known = [at for _, at in self._news.values() if moment - at <= patience.total_seconds()]
        return bool(members) and len(known) == len(members)
