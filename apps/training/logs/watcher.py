"""The watcher: reads what running attempts print, and wakes the reconciler when one of them changed.

Everything it does would happen without it, only later: the sweep observes too, and what was not read while an attempt
ran is read when it is closed. Several watchers divide the attempts (`logs.sharding`).
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

TICK = 0.1  # seconds between two reads of followed attempts
FIND = 1.0  # seconds between two searches for running tasks, unless a message reports a change
FIND_LEAST = 0.05  # shortest interval after such a message
SLOWEST, SLOWEST_FIRST = (
    1.0,
    0.2,
)  # seconds between two reads of a rank that prints nothing; of rank 0, which users watch
SHARE = 0.05  # largest share of its time that the watcher spends on observing a cluster
LOG_PAUSE = 0.2  # seconds between two messages that a task's logs grew
CONFIRM = 5.0  # seconds after which a change that was handed on has to be stored, or is handed on again
GATHER = 0.25  # seconds in which starting ranks of an attempt are reported together
REST = 5.0  # seconds without polling an attempt or a cluster after an error


def _alive() -> QuerySet[Task]:
    return Task.objects.filter(state__in=WITH_ATTEMPT, attempt__gt=0)


class Followed:
    """A running attempt: where reading its logs continues, how it was last observed, and when to read each rank
    again."""

    def __init__(self, task: Task, shares: Shares) -> None:
        self.task = task
        self.handle = handle_for(task, task.attempt)
        self.seen: Observation | None = None
        self.told: float | None = None  # when a change was handed on last, until it is stored
        self.pace = Pace(self.handle)
        self.used = Used(task)
        self._reading = ingest.Reading(task, task.attempt, shares.confirm)
        self._due = dict.fromkeys(range(task.world_size), 0.0)
        self._pause = dict.fromkeys(range(task.world_size), TICK)
        self._told = 0.0
        self._heard = self.pace.pulses
        self._untold = False

    def read(self, moment: float) -> bool:
        """Read the ranks that are due; quiet ones are read less and less often. Return True if there is more to read at
        once."""
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
        """Check how its ranks progress; for a script that prints no steps, what their probes count is its progress."""
        self.pace.look(moment, self.seen, soon=self._reading.waits)
        if self.pace.pulses is not self._heard:
            self._heard = self.pace.pulses
            self._reading.hear(self._heard)

    def is_news(self, seen: Observation, moment: float) -> bool:
        """Return True if the observation has to be handed to the reconciler. Also if the engine can no longer be asked,
        and again when it can. While an attempt starts, its ranks begin one by one; that is reported every
        GATHER_SECONDS."""
        known = self.known(seen)
        if known == self.seen:
            return False
        only_ranks = known and self.seen and replace(known, ranks=self.seen.ranks) == self.seen
        lately = self.told is not None and moment - self.told < GATHER
        return not (only_ranks and lately and seen.phase is Phase.STARTING)

    @staticmethod
    def known(seen: Observation) -> Observation | None:
        """Return the observation; None if it is unknown."""
        return None if seen.phase is Phase.UNKNOWN else seen

    def rest(self, moment: float) -> None:
        """Read no rank for ERROR_PAUSE_SECONDS."""
        self._due = dict.fromkeys(self._due, moment + REST)


class Watcher:
    """Follows the running attempts that belong to this watcher. `writer` takes their telemetry, and is flushed by
    another thread. Only the thread in `run` follows or leaves attempts."""

    def __init__(self, writer: Writer | None = None, shares: Shares | None = None) -> None:
        self.writer = writer or Writer()
        self.shares = shares or Alone()
        self._followed: dict[tuple[str, int], Followed] = {}
        self._observe_at: dict[str, float] = {}  # by cluster
        self._looked: dict[str, float] = {}  # by cluster: when its last observation began, in unix seconds
        self._found = 0.0

    def run(self) -> None:
        """Run until an exception from outside ends it. Errors are logged, and the loop continues."""
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
        """Follow the attempts that are running now and belong to this watcher, and no others."""
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
        """Read and observe what it follows; return True if there is more to read at once."""
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
        """Hand the attempts that changed since the last observation to the reconciler; return the shortest pause until
        the next one, in seconds."""
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
    """Return the attempts whose change was handed on and is not stored: the message was lost, or the pass used a cached
    observation of the engine from before the change."""
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
    """Log the error: an engine that is unavailable as one line, an unexpected error with its traceback. A broken
    database connection is closed."""
    known = isinstance(error, BackendError)
    log.log(logging.WARNING if known else logging.ERROR, "%s: %s; again in %s s", what, error, REST, exc_info=not known)
    connection.close_if_unusable_or_obsolete()
