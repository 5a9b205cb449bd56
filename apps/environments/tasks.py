"""The worker's way in: environments have threads of their own in each worker, and no messages of Celery's. Many tasks
that begin at once hold up no environment."""

from typing import Any

from celery.signals import worker_ready, worker_shutting_down

from apps.common.lanes import Lane
from apps.environments import hints, reconcile

THREADS = 3
"""So many clusters that answer slowly hold up no other."""
SECONDS = 2.0

lane = Lane(hints.CHANNEL, reconcile.sweep, THREADS, SECONDS)


@worker_ready.connect
def start(**_: Any) -> None:
    lane.start()


@worker_shutting_down.connect
def stop(**_: Any) -> None:
    lane.stop()
