"""Watches remote engines for changes that they report, and deletes attempts that they have and nobody needs."""

import logging
import threading
from queue import SimpleQueue
from typing import Self

from django.db import connection

from apps.clusters import reachability
from apps.clusters.cluster_threads import PerCluster
from apps.clusters.models import Cluster
from apps.training.core import wakeups
from apps.training.core.engine_access import backend_for
from apps.training.models import Attempt
from fermi.engines.base import Remote
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import attempt_parts

log = logging.getLogger(__name__)


def following() -> PerCluster:
    """Return the threads, one per remote cluster, that have changed tasks reconciled and logs collected."""

    def follow(cluster: Cluster, ending: threading.Event) -> None:
        backend = backend_for(cluster)
        assert isinstance(backend, Remote)
        with _Gathered(str(cluster)) as gathered:
            backend.watch(ending, lambda attempt: gathered.add(attempt_parts(attempt)[0]))

    return PerCluster("engine", lambda cluster: isinstance(backend_for(cluster), Remote), follow)


class _Gathered:
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
                wakeups.poke_all({task_id for task_id in told if task_id})
            except Exception:
                log.exception("changes of attempts wait until they are seen again")
                connection.close_if_unusable_or_obsolete()
        connection.close()


def sweep() -> int:
    """Delete what clusters have of attempts that have ended or are not known; return how many there were.

    The engine is asked first and the database then: an attempt is stored before it is submitted, so one that is about
    to start is never among the orphans. The output of one that has ended has been read to its end.
    """
    removed = 0
    for cluster in Cluster.objects.all():
        backend = backend_for(cluster)
        if not isinstance(backend, Remote):
            continue
        try:
            orphans = backend.orphans(())
            reachability.found(cluster)
            for handle in orphans:
                alive = Attempt.objects.filter(task=handle.task_id, number=handle.attempt, ended_at=None)
                if not alive.exists():
                    backend.forget(handle)
                    log.info("%s: removed what was left of %s", cluster, handle.name)
                    removed += 1
        except BackendError as error:
            log.warning("%s: orphans stay: %s", cluster, error)
            reachability.lost(cluster, error)
    return removed
