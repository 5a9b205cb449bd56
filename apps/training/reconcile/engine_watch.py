"""Watches remote engines for changes that they report, and deletes attempts that they have and nobody needs."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from queue import SimpleQueue
from typing import Self

from django.db import connection

from apps.clusters.cluster_threads import ClusterThreads
from apps.clusters.models import Cluster
from apps.clusters.services import record_reachable, record_unreachable
from apps.training.core import wakeups
from apps.training.core.engine_access import get_backend
from apps.training.models import Attempt
from fermi.engines.base import RemoteBackend
from fermi.jobs.errors import BackendError
from fermi.runner.run_names import parse_run_name


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


log = logging.getLogger(__name__)


def create_engine_watchers() -> ClusterThreads:
    """Return the threads, one per remote cluster, that have changed tasks reconciled and logs collected."""

    def follow(cluster: Cluster, ending: threading.Event) -> None:
        backend = get_backend(cluster)
        assert isinstance(backend, RemoteBackend)
        with _TaskBatcher(str(cluster)) as gathered:
            backend.watch(ending, lambda attempt: gathered.add(parse_run_name(attempt)[0]))

    return ClusterThreads("engine", lambda cluster: isinstance(get_backend(cluster), RemoteBackend), follow)


class _TaskBatcher:
    """Enqueues tasks in a thread of its own: each at once, and together those that come while that is being done."""

    def __init__(self, name: str) -> None:
        self._waiting = SimpleQueue[str | None]()
        self._thread = threading.Thread(target=self._run, name=f"told {name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._waiting.put(None)
        self._thread.join()

    def add(self, task_id: str) -> None:
        """Enqueue the task."""
        self._waiting.put(task_id)

    def _run(self) -> None:
        ended = False
        while not ended:
            told = [self._waiting.get()]
            while not self._waiting.empty():
                told.append(self._waiting.get())
            ended = None in told
            try:
                wakeups.enqueue_tasks({task_id for task_id in told if task_id})
            except Exception:
                log.exception("changes of attempts wait until they are seen again")
                connection.close_if_unusable_or_obsolete()
        connection.close()


def delete_orphans() -> int:
    """Delete what clusters have of attempts that have ended or are not known; return how many there were.

    The engine is asked first and the database then: an attempt is stored before it is submitted, so one that is about
    to start is never among the orphans. The output of one that has ended has been read to its end.
    """
    removed = 0
    for cluster in Cluster.objects.all():
        backend = get_backend(cluster)
        if not isinstance(backend, RemoteBackend):
            continue
        try:
            orphans = backend.orphans(())
            record_reachable(cluster)
            for handle in orphans:
                alive = Attempt.objects.filter(task=handle.task_id, number=handle.attempt, ended_at=None)
                if not alive.exists():
                    backend.delete_attempt(handle)
                    log.info("%s: removed what was left of %s", cluster, handle.name)
                    removed += 1
        except BackendError as error:
            log.warning("%s: orphans stay: %s", cluster, error)
            record_unreachable(cluster, error)
    return removed
