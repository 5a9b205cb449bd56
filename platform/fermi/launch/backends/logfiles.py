"""Ranks' logs as files of the platform: <data>/logs/<task>/<attempt>/<rank>.log, whoever writes them."""

import os
from pathlib import Path

from fermi.launch.spec import LogChunk


def chunk(path: Path, cursor: int, limit: int) -> LogChunk:
    """See `Backend.logs`."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if cursor > size:  # a file system refuses to seek to places beyond what it could ever hold
                return LogChunk(b"", cursor, end=True)
            file.seek(cursor if cursor >= 0 else max(0, size + cursor))
            cursor = file.tell()
            data = file.read(limit)
            return LogChunk(data, cursor + len(data), end=len(data) < limit)
    except FileNotFoundError:
        return LogChunk(b"", max(cursor, 0), end=True)
