"""Threads of a worker that do one kind of work only, so that nothing else delays it: Celery's threads are shared by all
its messages."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from django.db import close_old_connections

from apps.common import pubsub

log = logging.getLogger(__name__)


class Lane:
    """Calls `sweep` every `seconds`, and as soon as a message comes on `channel`, in at most `threads` threads, so that
    a long call does not delay what becomes due meanwhile. `sweep` returns how many rows it handled, and is called again
    until it returns 0."""

    def __init__(self, channel: str, sweep: Callable[[], int], threads: int, seconds: float) -> None:
        self.channel, self._sweep, self._seconds = channel, sweep, seconds
        self._free = threading.BoundedSemaphore(threads)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=channel)
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"{self.channel} lane", daemon=True).start()

    def stop(self) -> None:
        """Start no further call. Running calls end normally; the interpreter waits for them."""
        self._ended.set()

    def ring(self) -> bool:
        """Handle what is due now. Returns False if all threads are busy."""
        if not self._free.acquire(blocking=False):
            return False
        self._pool.submit(self._work)
        return True

    def _run(self) -> None:
        with pubsub.listen_for_wakeups(self.channel) as bell:
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
