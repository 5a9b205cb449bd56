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
from apps.common.sql import split_keys
from apps.telemetry.writer import TelemetryWriter
from apps.training.core import wakeups
from apps.training.core.engine_access import build_handle, observe_attempts
from apps.training.core.observation_store import compute_digest
from apps.training.logs import ingest, poll_interval
from apps.training.logs.sharding import LeaseLostError, SingleWatcher, WatcherSharding
from apps.training.logs.stragglers import RankMonitor
from apps.training.logs.telemetry import TelemetryCollector
from apps.training.models import Attempt, Task
from apps.training.states import STATES_WITH_ATTEMPT
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Observation, Phase

log = logging.getLogger(__name__)

TICK_SECONDS = 0.1  # seconds between two reads of followed attempts
FIND_SECONDS = 1.0  # seconds between two searches for running tasks, unless a message reports a change
MIN_FIND_SECONDS = 0.05  # shortest interval after such a message
MAX_READ_INTERVAL_SECONDS, MAX_RANK_0_INTERVAL_SECONDS = (
    1.0,
    0.2,
)  # seconds between two reads of a rank that prints nothing; of rank 0, which users watch
MAX_OBSERVE_SHARE = 0.05  # largest share of its time that the watcher spends on observing a cluster
LOG_MESSAGE_SECONDS = 0.2  # seconds between two messages that a task's logs grew
CONFIRM_SECONDS = 5.0  # seconds after which a change that was handed on has to be stored, or is handed on again
GATHER_SECONDS = 0.25  # seconds in which starting ranks of an attempt are reported together
ERROR_PAUSE_SECONDS = 5.0  # seconds without polling an attempt or a cluster after an error


def _query_alive_tasks() -> QuerySet[Task]:
    return Task.objects.filter(state__in=STATES_WITH_ATTEMPT, attempt__gt=0)


class FollowedAttempt:
    """A running attempt: where reading its logs continues, how it was last observed, and when to read each rank
    again."""

    def __init__(self, task: Task, shares: WatcherSharding) -> None:
        self.task = task
        self.handle = build_handle(task, task.attempt)
        self.seen: Observation | None = None
        self.told: float | None = None  # when a change was handed on last, until it is stored
        self.pace = RankMonitor(self.handle)
        self.used = TelemetryCollector(task)
        self._reading = ingest.LogReader(task, task.attempt, shares.confirm)
        self._due = dict.fromkeys(range(task.world_size), 0.0)
        self._pause = dict.fromkeys(range(task.world_size), TICK_SECONDS)
        self._told = 0.0
        self._heard = self.pace.pulses
        self._untold = False

    def read(self, moment: float) -> bool:
        """Read the ranks that are due; quiet ones are read less and less often. Return True if there is more to read at
        once."""
        ranks = [rank for rank, due in self._due.items() if due <= moment + TICK_SECONDS / 2]
        news = self._reading.read(ranks) if ranks else ingest.IngestResult()
        for rank in ranks:
            slowest = MAX_READ_INTERVAL_SECONDS if rank else MAX_RANK_0_INTERVAL_SECONDS
            self._pause[rank] = TICK_SECONDS if rank in news.grown else min(self._pause[rank] * 1.5, slowest)
            self._due[rank] = moment if news.more else moment + self._pause[rank]
        self._untold = self._untold or bool(news.grown)
        if self._untold and moment - self._told >= LOG_MESSAGE_SECONDS:
            wakeups.publish_change(self.task.pk, "log")
            self._told, self._untold = moment, False
        return news.more

    def judge(self, moment: float) -> None:
        """Check how its ranks progress; for a script that prints no steps, what their probes count is its progress."""
        self.pace.check_ranks(moment, self.seen, soon=self._reading.waits)
        if self.pace.pulses is not self._heard:
            self._heard = self.pace.pulses
            self._reading.hear(self._heard)

    def is_news(self, observation: Observation, moment: float) -> bool:
        """Return True if the observation has to be handed to the reconciler. Also if the engine can no longer be asked,
        and again when it can. While an attempt starts, its ranks begin one by one; that is reported every
        GATHER_SECONDS."""
        known = self.drop_unknown(observation)
        if known == self.seen:
            return False
        only_ranks = known and self.seen and replace(known, ranks=self.seen.ranks) == self.seen
        lately = self.told is not None and moment - self.told < GATHER_SECONDS
        return not (only_ranks and lately and observation.phase is Phase.STARTING)

    @staticmethod
    def drop_unknown(observation: Observation) -> Observation | None:
        """Return the observation; None if it is unknown."""
        return None if observation.phase is Phase.UNKNOWN else observation

    def rest(self, moment: float) -> None:
        """Read no rank for ERROR_PAUSE_SECONDS."""
        self._due = dict.fromkeys(self._due, moment + ERROR_PAUSE_SECONDS)


class Watcher:
    """Follows the running attempts that belong to this watcher. `writer` takes their telemetry, and is flushed by
    another thread. Only the thread in `run` follows or leaves attempts."""

    def __init__(self, writer: TelemetryWriter | None = None, shares: WatcherSharding | None = None) -> None:
        self.writer = writer or TelemetryWriter()
        self.shares = shares or SingleWatcher()
        self._followed: dict[tuple[str, int], FollowedAttempt] = {}
        self._observe_at: dict[str, float] = {}  # by cluster
        self._looked: dict[str, float] = {}  # by cluster: when its last observation began, in unix seconds
        self._found = 0.0

    def run(self) -> None:
        """Run until an exception from outside ends it. Errors are logged, and the loop continues."""
        found = find = least = 0.0
        with pubsub.listen_for_wakeups("tasks") as bell:
            while True:
                moment = time.monotonic()
                more = False
                try:
                    if moment >= find:
                        self.find()
                        found, least = (
                            moment,
                            max(
                                MIN_FIND_SECONDS,
                                poll_interval.compute_pause(time.monotonic() - moment, MAX_OBSERVE_SHARE),
                            ),
                        )
                        find = found + max(FIND_SECONDS, least)
                    more = self.poll(moment)
                except Exception:
                    log.exception("a look failed; the next one comes in %s s", FIND_SECONDS)
                    connection.close_if_unusable_or_obsolete()
                    self._followed = {}
                pause = TICK_SECONDS if self._followed else FIND_SECONDS
                if bell.wait(0.0 if more else min(pause, max(0.0, find - time.monotonic()))):
                    find = found + least

    def find(self) -> None:
        """Follow the attempts that are running now and belong to this watcher, and no others."""
        began = time.time()
        keys = {
            (pk, attempt) for pk, attempt in _query_alive_tasks().values_list("pk", "attempt") if self.shares.has(pk)
        }
        over = [one for key, one in self._followed.items() if key not in keys]
        self._followed = {key: one for key, one in self._followed.items() if key in keys}
        for one in over:
            self._read_use(one, one.used.read_remaining)
        if new := [pk for pk, attempt in keys if (pk, attempt) not in self._followed]:
            for task in (
                _query_alive_tasks()
                .filter(pk__in=new)
                .select_related("cluster")
                .only("attempt", "world_size", "cluster")
            ):
                self._followed[task.pk, task.attempt] = FollowedAttempt(task, self.shares)
        self._found = began

    def poll(self, moment: float) -> bool:
        """Read and observe what it follows; return True if there is more to read at once."""
        more = False
        by_cluster: defaultdict[str, list[FollowedAttempt]] = defaultdict(list)
        self._followed = {key: one for key, one in self._followed.items() if self.shares.has(key[0])}
        for one in self._followed.values():
            by_cluster[one.task.cluster_id].append(one)
            try:
                more |= one.read(moment)
                one.judge(moment)
            except LeaseLostError:
                log.debug("%s: another watcher reads it now, or one has come or gone", one.handle.name)
            except Exception as error:
                _log_error(error, f"{one.handle.name} cannot be read")
                one.rest(moment)
            self._read_use(one, partial(one.used.read, moment))
        for cluster, members in by_cluster.items():
            if moment >= self._observe_at.get(cluster, 0.0):
                began = time.monotonic()
                pause = self._observe(moment, members)
                self._observe_at[cluster] = moment + max(
                    pause, poll_interval.compute_pause(time.monotonic() - began, MAX_OBSERVE_SHARE)
                )
        self.shares.looked(min([self._found, *(self._looked.get(cluster, 0.0) for cluster in by_cluster)]))
        return more

    def _read_use(self, followed: FollowedAttempt, read: Callable[[TelemetryWriter], None]) -> None:
        try:
            read(self.writer)
        except Exception as error:
            _log_error(error, f"what {followed.handle.name} uses cannot be read")

    def _observe(self, moment: float, members: list[FollowedAttempt]) -> float:
        """Hand the attempts that changed since the last observation to the reconciler; return the shortest pause until
        the next one, in seconds."""
        cluster, began = members[0].task.cluster, time.time()
        try:
            seen = observe_attempts(cluster, [one.handle for one in members])
            changed = [one for one in members if one.is_news(seen[one.handle.name], moment)]
            told = [one for one in members if one.told is not None and moment - one.told >= CONFIRM_SECONDS]
            late = _list_unstored(told)
            wakeups.enqueue_tasks([one.task.pk for one in (*changed, *late)])
        except Exception as error:
            _log_error(error, f"cluster {cluster} cannot be asked")
            return ERROR_PAUSE_SECONDS
        self._looked[cluster.pk] = began
        for one in changed:
            one.seen = one.drop_unknown(seen[one.handle.name])
        for one in told:
            one.told = None
        for one in (*changed, *late):
            one.told = moment
        return (
            ERROR_PAUSE_SECONDS
            if any(now.waiting and now.phase is Phase.UNKNOWN for now in seen.values())
            else TICK_SECONDS
        )


def _list_unstored(followed: list[FollowedAttempt]) -> list[FollowedAttempt]:
    """Return the attempts whose change was handed on and is not stored: the message was lost, or the pass used a cached
    observation of the engine from before the change."""
    late = []
    for part in split_keys(followed):
        rows = Attempt.objects.filter(task__in=[one.task.pk for one in part], ended_at=None)
        marks = {(task, number): stored for task, number, stored in rows.values_list("task", "number", "seen_mark")}
        for one in part:
            stored = marks.get((one.task.pk, one.task.attempt))
            if stored is not None and one.seen is not None and stored != compute_digest(one.seen):
                late.append(one)
    return late


def _log_error(error: Exception, what: str) -> None:
    """Log the error: an engine that is unavailable as one line, an unexpected error with its traceback. A broken
    database connection is closed."""
    known = isinstance(error, BackendError)
    log.log(
        logging.WARNING if known else logging.ERROR,
        "%s: %s; again in %s s",
        what,
        error,
        ERROR_PAUSE_SECONDS,
        exc_info=not known,
    )
    connection.close_if_unusable_or_obsolete()
