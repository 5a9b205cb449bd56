"""Keeps a web process's cache in step with the database: one thread, and one that receives wake-ups."""

import logging
import threading
import time

from django.db import close_old_connections, connection

from apps.common import pubsub
from apps.telemetry import writer
from apps.workers import health, revisions
from apps.workers.heartbeat.cache import HeartbeatCache
from apps.workers.heartbeat.telemetry import TelemetryCollector

log = logging.getLogger(__name__)

REFRESH_SECONDS = (
    1.0  # seconds between two looks for what workers are to do, unless the bus says that something changed
)
FLUSH_SECONDS = health.LISTEN_INTERVAL.total_seconds()
BATCH_SECONDS = 0.02  # seconds that the change of a process waits for others to be stored with it
IDLE_SECONDS = 5.0  # seconds between two looks for a first worker


class CacheSync:
    """Threads that refresh and flush the cache."""

    def __init__(self, cache: HeartbeatCache, collector: TelemetryCollector | None = None) -> None:
        self._cache, self._used = cache, collector or TelemetryCollector()
        self._wake = threading.Event()
        self._rung = False

    def start(self) -> None:
        """Start the threads. Telemetry has a thread of its own, so that it does not delay what workers are to do."""
        for target in (self._keep, self._listen):
            threading.Thread(target=target, name=f"workers{target.__name__}", daemon=True).start()
        using = self._used, threading.Event()
        threading.Thread(target=writer.run_writer, args=using, name="workers_use", daemon=True).start()

    def hurry(self) -> None:
        """Store reports soon, because others wait for them."""
        self._wake.set()

    def _listen(self) -> None:
        with pubsub.listen_for_wakeups(revisions.CHANNEL) as bell:
            while True:
                if bell.wait(IDLE_SECONDS):
                    self._rung = True
                    self._wake.set()

    def _keep(self) -> None:
        refresh = flush = 0.0
        while True:
            try:
                close_old_connections()
                moment = time.monotonic()
                if self._rung or moment >= refresh:
                    self._rung = False
                    self._cache.refresh()
                    refresh = moment + (REFRESH_SECONDS if len(self._cache) else IDLE_SECONDS)
                if self._cache.urgent or (moment >= flush and len(self._cache)):
                    self._cache.flush()
                    flush = moment + FLUSH_SECONDS
            except Exception:
                log.exception("what workers say cannot be stored; again in %s s", REFRESH_SECONDS)
                connection.close_if_unusable_or_obsolete()
                refresh = flush = time.monotonic() + REFRESH_SECONDS
                time.sleep(REFRESH_SECONDS)
            due = min(refresh, flush) if len(self._cache) else refresh
            if self._wake.wait(max(0.0, due - time.monotonic())):
                self._wake.clear()
                time.sleep(BATCH_SECONDS)
