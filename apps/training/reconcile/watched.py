"""Whether watchers look at all that runs, so that nobody else needs to.

Each of them says with its beat when it began its last look at everything that is its (`output.shares`). It counts while
that goes on, by this process's own clock: of two machines' clocks none is compared.
"""

import time
from collections.abc import Callable, Mapping
from datetime import timedelta


class Heard:
    """`clock`: monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._news: dict[str, tuple[float, float]] = {}  # by watcher: its last look, and since when that is known

    def all_look(self, members: Mapping[str, int], looked: Mapping[str, float], patience: timedelta) -> bool:
        """Whether each of `members` looked again within `patience`."""
        moment, before = self._clock(), self._news
        self._news = {
            who: before[who] if who in before and before[who][0] == at else (at, moment)
            for who in members
            if (at := looked.get(who))
        }
        known = [at for _, at in self._news.values() if moment - at <= patience.total_seconds()]
        return bool(members) and len(known) == len(members)
