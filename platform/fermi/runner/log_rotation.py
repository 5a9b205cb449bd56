"""A log of which the newest part is kept: the disk gets back what is older, and each byte keeps its place. Standard
library only, Python 3.9 or later."""

from __future__ import annotations

import os

KEPT, STEP = 32 << 20, 4 << 20
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # linux/falloc.h


def trim(log: int, kept: int = KEPT, step: int = STEP) -> None:
    """Of a file that is open for writing. Where a file system cannot do it, nothing is given back."""
    old = (os.fstat(log).st_size - kept) // step * step
    if old > 0:
        import ctypes  # by then somebody prints a lot

        fallocate = getattr(ctypes.CDLL(None), "fallocate", None)
        if fallocate is not None:
            fallocate(log, _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_longlong(0), ctypes.c_longlong(old))


def begin(log: int, at: int) -> int:
    """From where on there is something to read."""
    try:
        return os.lseek(log, at, os.SEEK_DATA)
    except OSError:  # nothing is there, or a file system that does not tell
        return at
