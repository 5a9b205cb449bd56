"""The watcher: reads what alive attempts print, and tells the reconciler when something of one changed.

Everything it does would happen without it, only later: the sweep observes too, and what was not read while an attempt
lived is read when it is closed. Several watchers share the attempts (`shares`).
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from django.db import connection
from django.db.models import QuerySet

from apps.common import pubsub
from apps.common.sql import slices
from apps.telemetry.writer import Writer
from apps.training.core import wakeups
from apps.training.core.engine_access import handle_for, observe
from apps.training.core.observation_store import mark
from apps.training.logs import ingest, poll_interval
from apps.training.logs.sharding import Alone, Shares, Superseded
from apps.training.logs.stragglers import Pace
from apps.training.logs.telemetry import Used
from apps.training.models import Attempt, Task
from apps.training.states import WITH_ATTEMPT
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Observation, Phase

log = logging.getLogger(__name__)

TICK = 0.1  # seconds between two looks at what is alive
FIND = 1.0  # seconds between two looks for tasks that are, unless the bus says that something changed
FIND_LEAST = 0.05  # and even then
SLOWEST, SLOWEST_FIRST = (
    1.0,
    0.2,
)  # seconds between two looks at a rank that prints nothing; at rank 0, which people watch
SHARE = 0.05  # of its time at most that the watcher spends on observing a cluster, however many attempts there are
LOG_PAUSE = 0.2  # seconds between two messages that a task's logs grew
CONFIRM = 5.0  # seconds after which what was handed on is stored, or handed on again
GATHER = 0.25  # seconds in which the ranks of one that is starting begin, and are told of together
REST = 5.0  # seconds that an attempt or a cluster is left alone after an error


def _alive() -> QuerySet[Task]:
    return Task.objects.filter(state__in=WITH_ATTEMPT, attempt__gt=0)


class Followed:
    """One alive attempt: where reading it goes on, how it was last seen, and when to look at each rank again."""

    def __init__(self, task: Task, shares: Shares) -> None:
        self.task = task
        self.handle = handle_for(task, task.attempt)
        self.seen: Observation | None = None
        self.told: float | None = None  # when it was handed on last, until that is known to be stored
        self.pace = Pace(self.handle)
        self.used = Used(task)
        self._reading = ingest.Reading(task, task.attempt, shares.confirm)
        self._due = dict.fromkeys(range(task.world_size), 0.0)
        self._pause = dict.fromkeys(range(task.world_size), TICK)
        self._told = 0.0
        self._heard = self.pace.pulses
        self._untold = False

    def read(self, moment: float) -> bool:
        """Reads the ranks whose turn it is; quiet ones come less and less often. Whether there is more at once."""
        ranks = [rank for rank, due in self._due.items() if due <= moment + TICK / 2]
        news = self._reading.read(ranks) if ranks else ingest.News()
        for rank in ranks:
            slowest = SLOWEST if rank else SLOWEST_FIRST
            self._pause[rank] = TICK if rank in news.grown else min(self._pause[rank] * 1.5, slowest)
            self._due[rank] = moment if news.more else moment + self._pause[rank]
        self._untold = self._untold or bool(news.grown)
        if self._untold and moment - self._told >= LOG_PAUSE:
            wakeups.changed(self.task.pk, "log")
            self._told, self._untold = moment, False
        return news.more

    def judge(self, moment: float) -> None:
        """Looks at how its ranks get on; of a script that prints no steps, what their probes count is its progress."""
        self.pace.look(moment, self.seen, soon=self._reading.waits)
        if self.pace.pulses is not self._heard:
            self._heard = self.pace.pulses
            self._reading.hear(self._heard)

    def is_news(self, seen: Observation, moment: float) -> bool:
        """Also when nobody can tell any more: then it says so, and is news again. While it is starting its ranks begin
        one by one, and nothing hangs on one of them: that is told every now and then."""
        known = self.known(seen)
        if known == self.seen:
            return False
        only_ranks = known and self.seen and replace(known, ranks=self.seen.ranks) == self.seen
        lately = self.told is not None and moment - self.told < GATHER
        return not (only_ranks and lately and seen.phase is Phase.STARTING)

    @staticmethod
    def known(seen: Observation) -> Observation | None:
        return None if seen.phase is Phase.UNKNOWN else seen

    def rest(self, moment: float) -> None:
        self._due = dict.fromkeys(self._due, moment + REST)


class Watcher:
    """`writer`: takes what attempts use; somebody else has it write (`writing.keep`). `shares`: which of the alive
    attempts are this watcher's; nobody but the thread that runs it follows or leaves any."""

    def __init__(self, writer: Writer | None = None, shares: Shares | None = None) -> None:
        self.writer = writer or Writer()
        self.shares = shares or Alone()
        self._followed: dict[tuple[str, int], Followed] = {}
        self._observe_at: dict[str, float] = {}  # by cluster
        self._looked: dict[str, float] = {}  # by cluster: when the last look at it began, in unix seconds
        self._found = 0.0

    def run(self) -> None:
        """Until an exception from outside ends it. An error is logged, and passes."""
        found = find = least = 0.0
        with pubsub.listen("tasks") as bell:
            while True:
                moment = time.monotonic()
                more = False
                try:
                    if moment >= find:
                        self.find()
                        found, least = moment, max(FIND_LEAST, poll_interval.pause(time.monotonic() - moment, SHARE))
                        find = found + max(FIND, least)
                    more = self.look(moment)
                except Exception:
                    log.exception("a look failed; the next one comes in %s s", FIND)
                    connection.close_if_unusable_or_obsolete()
                    self._followed = {}
                pause = TICK if self._followed else FIND
                if bell.wait(0.0 if more else min(pause, max(0.0, find - time.monotonic()))):
                    find = found + least

    def find(self) -> None:
        """Follows the attempts that are alive now and its own, and no others."""
        began = time.time()
        keys = {(pk, attempt) for pk, attempt in _alive().values_list("pk", "attempt") if self.shares.has(pk)}
        over = [one for key, one in self._followed.items() if key not in keys]
        self._followed = {key: one for key, one in self._followed.items() if key in keys}
        for one in over:
            self._read_use(one, one.used.read_rest)
        if new := [pk for pk, attempt in keys if (pk, attempt) not in self._followed]:
            for task in _alive().filter(pk__in=new).select_related("cluster").only("attempt", "world_size", "cluster"):
                self._followed[task.pk, task.attempt] = Followed(task, self.shares)
        self._found = began

    def look(self, moment: float) -> bool:
        """Reads and observes what it follows; whether there is more to read at once."""
        more = False
        by_cluster: defaultdict[str, list[Followed]] = defaultdict(list)
        self._followed = {key: one for key, one in self._followed.items() if self.shares.has(key[0])}
        for one in self._followed.values():
            by_cluster[one.task.cluster_id].append(one)
            try:
                more |= one.read(moment)
                one.judge(moment)
            except Superseded:
                log.debug("%s: another watcher reads it now, or one has come or gone", one.handle.name)
            except Exception as error:
                _complain(error, f"{one.handle.name} cannot be read")
                one.rest(moment)
            self._read_use(one, partial(one.used.read, moment))
        for cluster, members in by_cluster.items():
            if moment >= self._observe_at.get(cluster, 0.0):
                began = time.monotonic()
                pause = self._observe(moment, members)
                self._observe_at[cluster] = moment + max(pause, poll_interval.pause(time.monotonic() - began, SHARE))
        self.shares.looked(min([self._found, *(self._looked.get(cluster, 0.0) for cluster in by_cluster)]))
        return more

    def _read_use(self, one: Followed, read: Callable[[Writer], None]) -> None:
        try:
            read(self.writer)
        except Exception as error:
            _complain(error, f"what {one.handle.name} uses cannot be read")

    def _observe(self, moment: float, members: list[Followed]) -> float:
        """Hands whoever changed since the last look to the reconciler. The least pause until the next one."""
        cluster, began = members[0].task.cluster, time.time()
        try:
            seen = observe(cluster, [one.handle for one in members])
            changed = [one for one in members if one.is_news(seen[one.handle.name], moment)]
            told = [one for one in members if one.told is not None and moment - one.told >= CONFIRM]
            late = _not_stored(told)
            wakeups.poke_all([one.task.pk for one in (*changed, *late)])
        except Exception as error:
            _complain(error, f"cluster {cluster} cannot be asked")
            return REST
        self._looked[cluster.pk] = began
        for one in changed:
            one.seen = one.known(seen[one.handle.name])
        for one in told:
            one.told = None
        for one in (*changed, *late):
            one.told = moment
        return REST if any(now.waiting and now.phase is Phase.UNKNOWN for now in seen.values()) else TICK


def _not_stored(told: list[Followed]) -> list[Followed]:
    """Those whose change was handed on and is not stored: the message was lost with whoever had it, or they looked
    through a memory of the engine that had not heard of it yet."""
    late = []
    for part in slices(told):
        rows = Attempt.objects.filter(task__in=[one.task.pk for one in part], ended_at=None)
        marks = {(task, number): stored for task, number, stored in rows.values_list("task", "number", "seen_mark")}
        for one in part:
            stored = marks.get((one.task.pk, one.task.attempt))
            if stored is not None and one.seen is not None and stored != mark(one.seen):
                late.append(one)
    return late


def _complain(error: Exception, what: str) -> None:
    """An engine that is away is one line, and a surprise a traceback. A broken connection is not used again."""
    known = isinstance(error, BackendError)
    log.log(logging.WARNING if known else logging.ERROR, "%s: %s; again in %s s", what, error, REST, exc_info=not known)
    connection.close_if_unusable_or_obsolete()
