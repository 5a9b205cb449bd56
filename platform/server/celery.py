"""The Celery app; `celery -A server.celery worker` starts from here."""

import os
import warnings
from functools import cached_property
from typing import Any

from celery import Celery
from celery.fixups.django import DjangoFixup, DjangoWorkerFixup
from celery.platforms import SecurityWarning
from celery.signals import task_postrun, worker_init, worker_ready

from fermi.runner.processes import refuse_tracers
from server import liveness

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "server.settings")
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")  # they import all views; `make check` runs them

# Celery warns root of pickled messages; only JSON is accepted here.
warnings.simplefilter("ignore", SecurityWarning)


class PersistentDbWorkerFixup(DjangoWorkerFixup):
    """Celery's Django fixup that keeps database connections for as long as Django's settings say. Celery closes them
    after each message: on SQLite the next one opens the file again and reads the whole schema, which costs more than
    most messages."""

    def _close_database(self) -> None:
        from django.db import close_old_connections  # which needs settings; an app does not

        close_old_connections()


class PersistentDbFixup(DjangoFixup):
    @cached_property
    def worker_fixup(self) -> DjangoWorkerFixup:
        return PersistentDbWorkerFixup(self.app)


def install_db_fixup(app: Celery) -> DjangoFixup:
    return PersistentDbFixup(app).install()


app = Celery("fermi", fixups=[install_db_fixup])
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@worker_init.connect
def _refuse_tracers(**_: object) -> None:
    refuse_tracers()


@worker_ready.connect
def _answer_supervisor(sender: Any, **_: object) -> None:
    """Answer the supervisor's liveness requests. `sender`: the consumer of messages, which has the pool of threads."""
    if liveness.is_supervised():
        task_postrun.connect(liveness.POOL_PROGRESS.finish)
        liveness.answer_in_thread(sender.pool.executor, "ThreadPoolExecutor")
