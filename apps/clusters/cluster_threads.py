"""One thread for each cluster whose engine is followed."""

import logging
import threading
from collections.abc import Callable

from django.db import close_old_connections, connection

from apps.clusters.models import Cluster
from fermi.jobs.errors import BackendError

log = logging.getLogger(__name__)

SCAN_SECONDS = 2.0  # seconds between two looks for clusters that are new or changed
RETRY_SECONDS = 10.0  # seconds after a failure
JOIN_SECONDS = 5.0  # seconds for a thread to end


class ClusterThreads:
    """Threads that call `follow(cluster, ending)` for each cluster of which `is_followed` is true, until the event is
    set, and again after a failure. A cluster whose connection was changed is followed anew. Of several processes, each
    follows the clusters whose id `is_mine` accepts."""

    def __init__(
        self, name: str, is_followed: Callable[[Cluster], bool], follow: Callable[[Cluster, threading.Event], None]
    ) -> None:
        self._name, self._wanted, self._follow = name, is_followed, follow
        self._threads: dict[tuple[str, str, str], tuple[threading.Thread, threading.Event]] = {}

    def run(self, stop: threading.Event, is_mine: Callable[[str], bool] = lambda _: True) -> None:
        """Start and end threads as clusters change, until `stop` is set; then wait for the threads to end."""
        while not stop.is_set():
            try:
                self.update(is_mine)
            except Exception:
                log.exception("%s: looking for clusters failed; again in %s s", self._name, SCAN_SECONDS)
                connection.close_if_unusable_or_obsolete()
            stop.wait(SCAN_SECONDS)
        self.close()
        connection.close()

    def update(self, is_mine: Callable[[str], bool] = lambda _: True) -> None:
        """Start threads for clusters that are new or have a new connection, and end those of clusters that are gone."""
        clusters = [cluster for cluster in Cluster.objects.all() if is_mine(cluster.pk) and self._wanted(cluster)]
        wanted = {(cluster.pk, cluster.backend, repr(cluster.connection)): cluster for cluster in clusters}
        for key in self._threads.keys() - wanted.keys():
            self._threads.pop(key)[1].set()
        for key in wanted.keys() - self._threads.keys():
            ending = threading.Event()
            name = f"{self._name} {wanted[key]}"
            thread = threading.Thread(target=self._keep, args=(wanted[key], ending), name=name, daemon=True)
            self._threads[key] = thread, ending
            thread.start()

    def close(self) -> None:
        """End all threads and wait up to JOIN_SECONDS for each."""
        for _, ending in self._threads.values():
            ending.set()
        for thread, _ in self._threads.values():
            thread.join(JOIN_SECONDS)  # one that waits for an answer ends with the process
        self._threads = {}

    def _keep(self, cluster: Cluster, ending: threading.Event) -> None:
        while not ending.is_set():
            try:
                close_old_connections()
                self._follow(cluster, ending)
            except Exception as error:
                known = isinstance(error, BackendError)
                level = logging.WARNING if known else logging.ERROR
                log.log(
                    level, "%s %s: %s; again in %s s", self._name, cluster, error, RETRY_SECONDS, exc_info=not known
                )
                connection.close_if_unusable_or_obsolete()
            ending.wait(RETRY_SECONDS)
        connection.close()
