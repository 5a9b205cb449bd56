"""Background threads of workers for environments: environments use no Celery messages. Many tasks that start at once
delay no environment; nor do surveys, or installations, which take minutes."""

from typing import Any

from celery.signals import worker_ready, worker_shutting_down

from apps.common.worker_lanes import Lane
from apps.environments import memory_surveys, reconcile, standby, transitions
from apps.environments.packages import installation, surveys

RECONCILE_THREADS = 3
"""Engines that answer slowly delay no other as long as they are fewer than this."""
SURVEY_THREADS, INSTALLATION_THREADS = 6, 4
"""At once in each worker."""
SWEEP_SECONDS = 2.0

lanes = (
    Lane(transitions.CHANNEL, reconcile.reconcile_due, RECONCILE_THREADS, SWEEP_SECONDS),
    Lane(surveys.CHANNEL, surveys.run_due_survey, SURVEY_THREADS, SWEEP_SECONDS),
    Lane(memory_surveys.CHANNEL, memory_surveys.run_due_survey, SURVEY_THREADS, SWEEP_SECONDS),
    Lane(standby.CHANNEL, standby.run_due_check, SURVEY_THREADS, SWEEP_SECONDS),
    Lane(installation.CHANNEL, installation.run_due_installation, INSTALLATION_THREADS, SWEEP_SECONDS),
)


@worker_ready.connect
def start_lanes(**_: Any) -> None:
    for lane in lanes:
        lane.start()


@worker_shutting_down.connect
def stop_lanes(**_: Any) -> None:
    for lane in lanes:
        lane.stop()
