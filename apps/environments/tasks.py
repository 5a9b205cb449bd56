"""Background threads of workers for environments: environments use no Celery messages. Many tasks that start at once
delay no environment; nor do surveys, or installations, which take minutes."""

from typing import Any

from celery.signals import worker_ready, worker_shutting_down

from apps.common.worker_lanes import Lane
from apps.environments import hints, memory_surveys, reconcile, standby
from apps.environments.packages import installation, surveys

THREADS = 3
"""Engines that answer slowly delay no other as long as they are fewer than this."""
LOOKS, INSTALLATIONS = 6, 4
"""At once in each worker."""
SECONDS = 2.0

lanes = (
    Lane(hints.CHANNEL, reconcile.sweep, THREADS, SECONDS),
    Lane(surveys.CHANNEL, surveys.sweep, LOOKS, SECONDS),
    Lane(memory_surveys.CHANNEL, memory_surveys.sweep, LOOKS, SECONDS),
    Lane(standby.CHANNEL, standby.sweep, LOOKS, SECONDS),
    Lane(installation.CHANNEL, installation.sweep, INSTALLATIONS, SECONDS),
)


@worker_ready.connect
def start(**_: Any) -> None:
    for lane in lanes:
        lane.start()


@worker_shutting_down.connect
def stop(**_: Any) -> None:
    for lane in lanes:
        lane.stop()
