"""Threads of a worker that do one kind of work alone, so that nothing else holds it up: Celery's threads are shared by
everything that has messages."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from django.db import close_old_connections

from apps.common import pubsub

log = logging.getLogger(__name__)


class Lane:
    """Calls `sweep` every `seconds`, and as soon as something is said on `channel`: in `threads` threads at most, so
    that one call that takes long does not hold up what comes due meanwhile. `sweep` returns how many rows it found, and
    is called again until there are none."""

    def __init__(self, channel: str, sweep: Callable[[], int], threads: int, seconds: float) -> None:
        self.channel, self._sweep, self._seconds = channel, sweep, seconds
        self._free = threading.BoundedSemaphore(threads)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=channel)
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"{self.channel} lane", daemon=True).start()

    def stop(self) -> None:
        """Begins no further call. Those that are under way come to their end; the interpreter waits for them."""
        self._ended.set()

    def ring(self) -> bool:
        """Has what is due looked at now. False: all threads are at it."""
        if not self._free.acquire(blocking=False):
            return False
        self._pool.submit(self._work)
        return True

    def _run(self) -> None:
        with pubsub.listen(self.channel) as bell:
            while not self._ended.is_set():
                self.ring()
                bell.wait(self._seconds)

    def _work(self) -> None:
        try:
            close_old_connections()
            while not self._ended.is_set() and self._sweep():
                pass
        except Exception:  # the next call does what this one has left
            log.exception("%s: a sweep failed; the next one comes in %s s", self.channel, self._seconds)
        finally:
            close_old_connections()
            self._free.release()
