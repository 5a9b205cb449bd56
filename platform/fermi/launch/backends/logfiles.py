"""Ranks' logs as files of the platform: <data>/logs/<task>/<attempt>/<rank>.log, whoever writes them."""

import os
from pathlib import Path

from fermi.launch.spec import LogChunk


def chunk(path: Path, cursor: int, limit: int) -> LogChunk:
    """See `Backend.logs`."""
    try:
        with open(path, "rb") as file:
            if cursor < 0:
                cursor = max(0, os.fstat(file.fileno()).st_size + cursor)
            file.seek(cursor)
            data = file.read(limit)
            return LogChunk(data, cursor + len(data), end=len(data) < limit)
    except FileNotFoundError:
        return LogChunk(b"", max(cursor, 0), end=True)
