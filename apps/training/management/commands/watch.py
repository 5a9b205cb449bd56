"""The management command `watch`: the watcher process (see `apps.training.logs.watcher`)."""

import gc
import signal
import threading
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from apps.clusters import discovery
from apps.telemetry import writer as writing
from apps.training.core import wakeups
from apps.training.logs import sharding, telemetry
from apps.training.logs.watcher import Watcher
from apps.training.reconcile import engine_watch

ENDINGS = (signal.SIGTERM, signal.SIGINT)


class Ended(BaseException):
    """Raised on SIGTERM or SIGINT: what was being stored is rolled back, and read again by the next watcher."""


AGAIN = 1.0
"""Seconds until the exception is raised again: code that Python calls by itself, such as a destructor, may swallow it.
"""


def _end(number: int, frame: FrameType | None) -> None:
    """Raise WatcherEndedError once, as Ctrl-C may come from the terminal and from the supervisor; again until it has
    arrived."""
    for either in ENDINGS:
        signal.signal(either, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, _end)
    signal.setitimer(signal.ITIMER_REAL, AGAIN)
    raise Ended


PAUSED = 5.0
"""Seconds after which PostgreSQL ends the transaction of a stopped watcher, so that others do not wait for its locks.
"""


def _let_go_when_paused(connection: BaseDatabaseWrapper, **_: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET idle_in_transaction_session_timeout = {PAUSED * 1000:.0f}")


class Command(BaseCommand):
    help = "Follows running training (its output, its changes) and the environments of clusters."
    requires_system_checks = ()  # they import all views

    def handle(self, *args: Any, **options: Any) -> None:
        ending = threading.Event()
        share = _share()
        try:
            for number in ENDINGS:
                signal.signal(number, _end)
            gc.freeze()  # what is imported stays: looking through it would only make the end slow
            writer = writing.Writer()
            here = telemetry.this_machine(writer, [str(settings.DATA_DIR)])
            threading.Thread(target=share.run, args=(ending,)).start()
            for followed in (discovery.following(wakeups.poke_waiting), engine_watch.following(), here):
                threading.Thread(target=followed.run, args=(ending, share.has)).start()
            threading.Thread(target=writing.keep, args=(writer, ending)).start()
            Watcher(writer, share).run()
        except Ended:
            signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            ending.set()
            share.hurry()


def _share() -> sharding.Shares:
    """Return the division of work; SQLite is used on one machine, by one watcher."""
    if connection.vendor == "sqlite":
        return sharding.Alone()
    connection_created.connect(_let_go_when_paused)
    return sharding.Shared()
