"""The threads that requests run in, one at a time as long as it gets on.

The interpreter runs one thread at a time anyway, and SQLite's driver offers it to another at every row it reads: eight
requests at once took twice the processor time that they take one after the other (a list of 50 tasks: 6.3 ms and 3.5).
So one thread works through the queue. When its request takes longer than PATIENCE, it waits for something else (a lock,
the broker, a disk): another thread goes on with the queue, and the first joins the idle ones when it is done.

The event loop would be such another thread, a dozen times in a request (a task's page took 1.9 ms of the processor with
it, and 1.3 without). So with `do` it waits, too: for LOOP_WAITS, in which most requests are done.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

PATIENCE = 0.05  # seconds
LOOP_WAITS = 0.005

T = TypeVar("T")


class TakingTurns(Executor):
    """Used from one event loop. Whose turn it is holds `_turn` and takes from the queue."""

    def __init__(self, threads: int, name: str) -> None:
        self._most, self._name = threads, name
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._turn = threading.Lock()
        self._guard = threading.Lock()  # of the three below
        self._started = self._idle = 0
        self._at: tuple[object, float] | None = None  # the request that has the turn, and since when
        self._timer: asyncio.TimerHandle | None = None

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(*args, **kwargs))
                except BaseException as error:
                    future.set_exception(error)

        self._queue.put(work)
        if not self._started:
            self._start()
        self._look_later()
        return future

    async def do(self, function: Callable[[], T]) -> T:
        """What it returns or raises. The event loop waits for it where nothing else stands in front of it."""
        next_one = self._at is None and self._queue.empty()
        future = self.submit(function)
        if next_one:
            with suppress(TimeoutError):
                future.exception(LOOP_WAITS)
        return future.result() if future.done() else await asyncio.wrap_future(future)

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{self._name}_{self._started}", daemon=True)
        self._started += 1
        self._idle += 1
        thread.start()

    def _work(self) -> None:
        while True:
            self._turn.acquire()
            with self._guard:
                self._idle -= 1
            while self._do(self._queue.get()):
                pass

    def _do(self, work: Callable[[], None]) -> bool:
        """Whether this thread still has the turn."""
        mine = (work, time.monotonic())
        self._at = mine
        work()
        with self._guard:
            if self._at is mine:
                self._at = None
                return True
            self._idle += 1
            return False

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._look)

    def _look(self) -> None:
        """While somebody waits: is the turn with a request that takes too long?"""
        self._timer = None
        if self._queue.empty():
            return
        with self._guard:
            if self._at and time.monotonic() - self._at[1] > PATIENCE:
                self._at = None
                self._turn.release()
                if not self._idle and self._started < self._most:
                    self._start()
        self._look_later()
