"""Answers the supervisor's questions whether this process lives (`server.up.watchdog` asks).

The event loop of a web process answers, or a thread of a worker: that proves that it is not blocked. The answer tells
of the pool of threads in which requests or messages are worked on: numbers that change as long as any of them is
finished, or the pool's threads compute.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Any

VARIABLE = "FERMI_LIVENESS_FD"
"""The file descriptor of the line to the supervisor; set by it alone."""
LONGEST = 64  # bytes of a question, and of an answer


class Progress:
    """Of the pool of this process."""

    def __init__(self) -> None:
        self.finished = 0

    def finish(self, *_: object, **__: object) -> None:
        self.finished += 1


PROGRESS = Progress()


class Line:
    """To the supervisor. `try_pool` has the pool call what it is given, as soon as one of its threads has time; `names`
    is how the names of its threads begin."""

    def __init__(self, descriptor: int, try_pool: Callable[[Callable[[], None]], Any], names: str) -> None:
        self.socket = socket.socket(fileno=descriptor)
        self.socket.set_inheritable(False)
        self._try_pool, self._names = try_pool, names
        self._tried = False

    def answer(self) -> bool:
        """Answers one question. False: there will be no more."""
        try:
            if not self.socket.recv(LONGEST):
                return False
            if not self._tried:
                self._tried = True
                self._try_pool(self._passed)
            self.socket.send(self._told(), socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def _passed(self) -> None:
        self._tried = False
        PROGRESS.finish()

    def _told(self) -> bytes:
        """While the last try has not passed, the pool's threads may compute all the same: tenths of a second."""
        return b"%d %d" % (PROGRESS.finished, used(self._names) // 100_000_000 if self._tried else 0)


def used(names: str) -> int:
    """Returns the processor's nanoseconds that threads whose names begin so have used (proc(5), schedstat)."""
    total = 0
    for thread in threading.enumerate():
        if thread.name.startswith(names):
            with suppress(OSError, ValueError, IndexError):
                total += int(Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text("ascii").split()[0])
    return total


def is_asked() -> bool:
    """Whether somebody will ask this process."""
    return VARIABLE in os.environ


def _inherited() -> int:
    """Programs that this process starts are not asked."""
    return int(os.environ.pop(VARIABLE))


def answer_in_loop(run: Callable[[Callable[[], None]], Awaitable[None]], names: str) -> None:
    """From the running event loop, as long as somebody asks. `run` is the pool's."""
    loop = asyncio.get_running_loop()
    kept: set[asyncio.Future[None]] = set()  # the loop itself does not keep them

    def try_pool(work: Callable[[], None]) -> None:
        passing = asyncio.ensure_future(run(work))
        kept.add(passing)
        passing.add_done_callback(kept.discard)

    def answer() -> None:
        if not line.answer():
            loop.remove_reader(line.socket)

    line = Line(_inherited(), try_pool, names)
    loop.add_reader(line.socket, answer)


def answer_in_thread(pool: Executor, names: str) -> None:
    """From a thread of its own, as long as somebody asks."""
    line = Line(_inherited(), pool.submit, names)

    def answer() -> None:
        while line.answer():
            pass

    threading.Thread(target=answer, name="liveness", daemon=True).start()
