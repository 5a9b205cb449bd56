"""Engines that live elsewhere: what they tell of by themselves, and what they still have that nobody needs."""

import logging
import threading

from apps.clusters import contact
from apps.clusters.models import Cluster
from apps.clusters.threads import PerCluster
from apps.training.ground import hints
from apps.training.ground.launching import backend_for
from apps.training.models import Attempt
from fermi.launch.backends.base import Remote
from fermi.launch.errors import BackendError
from fermi.launch.spec import attempt_parts

log = logging.getLogger(__name__)


def following() -> PerCluster:
    """Hands tasks of which something changed to the reconciler, and has their logs brought here."""

    def follow(cluster: Cluster, ending: threading.Event) -> None:
        backend = backend_for(cluster)
        assert isinstance(backend, Remote)
        backend.watch(ending, lambda attempt: hints.poke(attempt_parts(attempt)[0]))

    return PerCluster("engine", lambda cluster: isinstance(backend_for(cluster), Remote), follow)


def sweep() -> int:
    """Removes what clusters have of attempts that have ended or are not known; how many there were.

    The engine is asked first and the database then: an attempt is stored before it is submitted, so one that is about
    to begin is never among the orphans. One that has ended has been read to its end.
    """
    removed = 0
    for cluster in Cluster.objects.all():
        backend = backend_for(cluster)
        if not isinstance(backend, Remote):
            continue
        try:
            orphans = backend.orphans(())
            contact.found(cluster)
            for handle in orphans:
                alive = Attempt.objects.filter(task=handle.task_id, number=handle.attempt, ended_at=None)
                if not alive.exists():
                    backend.forget(handle)
                    log.info("%s: removed what was left of %s", cluster, handle.name)
                    removed += 1
        except BackendError as error:
            log.warning("%s: orphans stay: %s", cluster, error)
            contact.lost(cluster, error)
    return removed
