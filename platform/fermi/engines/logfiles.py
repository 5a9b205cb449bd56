"""Ranks' logs as files of the platform: <data>/logs/<task>/<attempt>/<rank>.log, whichever process writes them."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from fermi.jobs.spec import LogChunk
from fermi.runner import log_rotation


def read_chunk(path: Path, cursor: int, limit: int) -> LogChunk:
    """Return a part of a log; see `Backend.logs`."""
    try:
        with open_regular_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if cursor > size:  # a file system refuses to seek to places beyond what it could ever hold
                return LogChunk(b"", cursor, end=True)
            cursor = log_rotation.find_data_start(file.fileno(), cursor if cursor >= 0 else max(0, size + cursor))
            file.seek(cursor)
            data = file.read(limit)
            return LogChunk(data, cursor + len(data), end=len(data) < limit)
    except FileNotFoundError:
        return LogChunk(b"", max(cursor, 0), end=True)


def trim_log(file: BinaryIO) -> None:
    """Keep the newest part of a log; what is older becomes a hole, which `read_chunk` skips."""
    log_rotation.trim_log(file.fileno())


def open_regular_file(path: str | Path) -> BinaryIO:
    """Open a file for reading that a user's script may have written: a pipe would block the reader, and a link or
    device leads elsewhere. Raise FileNotFoundError for these, and IsADirectoryError for a folder."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise FileNotFoundError(error.errno, error.strerror, str(path)) from error
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "a folder", str(path))
    raise FileNotFoundError(errno.ENOENT, "no regular file", str(path))
