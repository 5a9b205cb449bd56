"""Limits the disk space of a log: the blocks of its oldest part are released, and each byte keeps its offset. Standard
library only, Python 3.9 or later."""

from __future__ import annotations

import os

MAX_LOG_BYTES, STEP_BYTES = 32 << 20, 4 << 20
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # linux/falloc.h


def trim_log(log: int, kept: int = MAX_LOG_BYTES, step: int = STEP_BYTES) -> None:
    """Release the blocks of all but the last `kept` bytes of a file that is open for writing. Does nothing if the file
    system does not support it."""
    old = (os.fstat(log).st_size - kept) // step * step
    if old > 0:
        release_blocks(log, old)


def release_blocks(file: int, end: int) -> None:
    """Release the blocks of the first `end` bytes of a file, where the file system supports it."""
    import ctypes  # only for long files

    fallocate = getattr(ctypes.CDLL(None), "fallocate", None)
    if fallocate is not None:
        fallocate(file, _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_longlong(0), ctypes.c_longlong(end))


def find_data_start(log: int, at: int) -> int:
    """Return the offset from which the log still has data."""
    try:
        return os.lseek(log, at, os.SEEK_DATA)
    except OSError:  # nothing is there, or a file system that does not tell
        return at
