"""A thread of a rank's process that writes the stacks of all its threads when the runner requests them. Standard
library only, Python 3.9 or later.

A request is a moment in the page, and no signal interrupts the script: a signal cuts a `write` to a pipe short, and
ends a `sleep` in C (signal(7), "Interruption of system calls and library functions by signal handlers"; SA_RESTART
changes neither). Nor does anything trace the process: stopping it, as py-spy does by default, cuts a `write` short as
well.

Writing needs the GIL. If a thread holds it (a loop in C), the runner sends `rank.STACK_SIGNAL` to this thread alone,
and `faulthandler`'s handler writes the stacks without the GIL (CPython, Modules/faulthandler.c, `faulthandler_user`).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` is slow to import, and every Python of a rank imports this
import _thread
import atexit
import faulthandler
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .shared_page import SharedPage

PERIOD_SECONDS = 0.1
"""Seconds between two checks for a request; each takes two microseconds."""
TIMEOUT_SECONDS = 1.0


def start_writer(page: SharedPage, stacks: int, is_mine: Callable[[], bool]) -> None:
    """Start the thread. It ends before the interpreter does, or when another process owns the page. It is none of
    `threading`'s, so that the script does not count it. Returns when the page has its id, after `TIMEOUT_SECONDS` at
    the latest: a script that holds the GIL from its first line on would keep it from writing that. After any error the
    rank goes on, and no stacks are written."""
    try:
        begun, ending, ended = _thread.allocate_lock(), _thread.allocate_lock(), _thread.allocate_lock()
        for lock in (begun, ending, ended):
            lock.acquire()
        _thread.start_new_thread(_run_writer, (page, stacks, is_mine, begun, ending, ended))
        atexit.register(_end_writer, os.getpid(), ending, ended)
        begun.acquire(timeout=TIMEOUT_SECONDS)
    except Exception:
        pass


def _end_writer(pid: int, ending: _thread.LockType, ended: _thread.LockType) -> None:
    """End the thread, within PERIOD_SECONDS: up to Python 3.13 the interpreter ends a thread that is left by
    `pthread_exit`, which aborts the process where an image has no libgcc_s (CPython, `take_gil`).
    The thread is not woken: it sleeps outside of locks, by which `fermi.runner.stacks` sees that it does not wait for
    the GIL."""
    if os.getpid() == pid:  # a forked child has no such thread
        ending.release()
        if ended.acquire(timeout=TIMEOUT_SECONDS):
            time.sleep(0.001)  # without the GIL, which the thread may need for its return


def _run_writer(
    page: SharedPage,
    stacks: int,
    is_mine: Callable[[], bool],
    begun: _thread.LockType,
    ending: _thread.LockType,
    ended: _thread.LockType,
) -> None:
    try:
        pid = os.getpid()
        # the process's signals go to the script's threads, which wait for them
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals() - {_signal.SIGURG})
        page.number("answers", _thread.get_native_id())
        begun.release()
        while ending.locked() and is_mine() and page.pid() == pid:
            asked = page.at("asked_at")
            if asked != page.at("answered_at"):
                faulthandler.dump_traceback(stacks, all_threads=True)
                page.moment("answered_at", asked)
            time.sleep(PERIOD_SECONDS)
    except Exception:
        pass
    finally:
        ended.release()
