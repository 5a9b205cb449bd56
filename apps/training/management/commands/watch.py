"""The management command `watch`: the watcher process (see `apps.training.logs.watcher`)."""

import gc
import signal
import sys
import threading
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from apps.clusters import discovery
from apps.telemetry import writer as series_writer
from apps.training.core import wakeups
from apps.training.logs import sharding, telemetry
from apps.training.logs.watcher import Watcher
from apps.training.reconcile import engine_watch

END_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class WatcherEndedError(BaseException):
    """Raised on SIGTERM or SIGINT: what was being stored is rolled back, and read again by the next watcher."""


RESEND_SECONDS = 1.0
"""Seconds until the exception is raised again: code that Python calls by itself, such as a destructor, may swallow it.
"""


def _raise_ended(number: int, frame: FrameType | None) -> None:
    """Raise WatcherEndedError once, as Ctrl-C may come from the terminal and from the supervisor; again until it has
    arrived."""
    for either in END_SIGNALS:
        signal.signal(either, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, _raise_ended)
    signal.setitimer(signal.ITIMER_REAL, RESEND_SECONDS)
    raise WatcherEndedError


def _hide_ended(unraisable: "sys.UnraisableHookArgs") -> None:
    """Print nothing of a WatcherEndedError that a destructor has swallowed: it is raised again."""
    if unraisable.exc_type is not WatcherEndedError:
        sys.__unraisablehook__(unraisable)


MAX_IDLE_TRANSACTION_SECONDS = 5.0
"""Seconds after which PostgreSQL ends the transaction of a stopped watcher, so that others do not wait for its locks.
"""


def _limit_idle_transactions(connection: BaseDatabaseWrapper, **_: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET idle_in_transaction_session_timeout = {MAX_IDLE_TRANSACTION_SECONDS * 1000:.0f}")


class Command(BaseCommand):
    help = "Follows running training (its output, its changes) and the environments of clusters."
    requires_system_checks = ()  # they import all views

    def handle(self, *args: Any, **options: Any) -> None:
        ending = threading.Event()
        share = _create_sharding()
        sys.unraisablehook = _hide_ended
        try:
            for number in END_SIGNALS:
                signal.signal(number, _raise_ended)
            gc.freeze()  # what is imported stays: looking through it would only make the end slow
            writer = series_writer.TelemetryWriter()
            here = telemetry.create_host_sampler(writer, [str(settings.DATA_DIR)])
            threading.Thread(target=share.run, args=(ending,)).start()
            for followed in (
                discovery.make_discovery_threads(wakeups.enqueue_waiting_tasks),
                engine_watch.create_engine_watchers(),
                here,
            ):
                threading.Thread(target=followed.run, args=(ending, share.has)).start()
            threading.Thread(target=series_writer.run_writer, args=(writer, ending)).start()
            Watcher(writer, share).run()
        except WatcherEndedError:
            signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            ending.set()
            share.hurry()


def _create_sharding() -> sharding.WatcherSharding:
    """Return the division of work; SQLite is used on one machine, by one watcher."""
    if connection.vendor == "sqlite":
        return sharding.SingleWatcher()
    connection_created.connect(_limit_idle_transactions)
    return sharding.ShardedWatcher()
