"""Answers the supervisor's liveness requests in a web process or a worker (`server.up.watchdog` sends them).

The event loop of a web process answers, or a thread of a worker: that proves that it is not blocked. The answer has two
numbers about the thread pool that processes requests or messages; they change as long as any of these finishes, or the
pool's threads compute.
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

LIVENESS_VARIABLE = "FERMI_LIVENESS_FD"
"""Variable with the file descriptor of the connection to the supervisor, which alone sets it."""
MAX_MESSAGE_BYTES = 64  # bytes of a question, and of an answer


class PoolProgress:
    """Counter of finished requests or messages of this process's pool."""

    def __init__(self) -> None:
        self.finished = 0

    def finish(self, *_: object, **__: object) -> None:
        self.finished += 1


POOL_PROGRESS = PoolProgress()


class SupervisorConnection:
    """This process's end of the connection to the supervisor. `try_pool` submits a function to the pool; `names` is the
    prefix of the names of its threads."""

    def __init__(self, descriptor: int, try_pool: Callable[[Callable[[], None]], Any], names: str) -> None:
        self.socket = socket.socket(fileno=descriptor)
        self.socket.set_inheritable(False)
        self._try_pool, self._names = try_pool, names
        self._tried = False

    def answer(self) -> bool:
        """Answer one request. Return False where there will be no more."""
        try:
            if not self.socket.recv(MAX_MESSAGE_BYTES):
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
        POOL_PROGRESS.finish()

    def _told(self) -> bytes:
        """Return the answer: finished jobs, and, while the last submitted probe has not run, the pool threads'
        processor time in tenths of a second, since they may compute all the same."""
        return b"%d %d" % (
            POOL_PROGRESS.finished,
            read_cpu_nanoseconds(self._names) // 100_000_000 if self._tried else 0,
        )


def read_cpu_nanoseconds(names: str) -> int:
    """Return the processor time, in nanoseconds, of threads whose names begin with `names` (proc(5), schedstat)."""
    total = 0
    for thread in threading.enumerate():
        if thread.name.startswith(names):
            with suppress(OSError, ValueError, IndexError):
                total += int(Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text("ascii").split()[0])
    return total


def is_supervised() -> bool:
    """Return True if a supervisor checks this process."""
    return LIVENESS_VARIABLE in os.environ


def _take_descriptor() -> int:
    """Return the file descriptor and remove it from the environment: child processes are not checked."""
    return int(os.environ.pop(LIVENESS_VARIABLE))


def answer_in_loop(run: Callable[[Callable[[], None]], Awaitable[None]], names: str) -> None:
    """Answer from the running event loop, as long as the supervisor asks. `run` runs a function in the pool."""
    loop = asyncio.get_running_loop()
    kept: set[asyncio.Future[None]] = set()  # the loop itself does not keep them

    def try_pool(work: Callable[[], None]) -> None:
        passing = asyncio.ensure_future(run(work))
        kept.add(passing)
        passing.add_done_callback(kept.discard)

    def answer() -> None:
        if not line.answer():
            loop.remove_reader(line.socket)

    line = SupervisorConnection(_take_descriptor(), try_pool, names)
    loop.add_reader(line.socket, answer)


def answer_in_thread(pool: Executor, names: str) -> None:
    """Answer from a thread of its own, as long as the supervisor asks."""
    line = SupervisorConnection(_take_descriptor(), pool.submit, names)

    def answer() -> None:
        while line.answer():
            pass

    threading.Thread(target=answer, name="liveness", daemon=True).start()
