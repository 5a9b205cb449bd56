"""Detects full disks, and writes a runner's status to them all the same. Standard library only, Python 3.9 or later."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Any

MIN_FREE_BYTES = 1 << 20
"""A disk with less free space counts as full: file systems keep small remainders."""


def format_bytes(number_of_bytes: float) -> str:
    """Return a number of bytes with three digits and a unit, such as `41.2 GiB`."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = next((power for power in range(len(units)) if number_of_bytes < 1000 * 1024**power), len(units) - 1)
    return f"{number_of_bytes / 1024**power:.3g} {units[power]}"


def find_full_disk(folders: Iterable[str]) -> dict[str, Any] | None:
    """Return the first of these folders whose disk is full for an ordinary user, with its figures in bytes; else
    None."""
    for folder in folders:
        with contextlib.suppress(OSError):
            disk = os.statvfs(folder)
            free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
            if total and (free < MIN_FREE_BYTES or (disk.f_files and not disk.f_favail)):
                return {"path": folder, "free": free, "total": total}
    return None


class PreallocatedSpace:
    """A file of the same size next to another one, whose blocks are allocated already: on a full disk it is overwritten
    and the two are exchanged, which needs no space. Allocated as soon as there is some."""

    def __init__(self, path: str, size: int) -> None:
        self.file, self.path, self.size = path, f"{path}.reserve", size

    def padded(self, content: bytes) -> bytes:
        """Return `content` filled up with spaces to the size of the file."""
        return content.ljust(self.size)

    def allocate(self) -> None:
        """Allocate the file if it is missing. A full disk is no error."""
        with contextlib.suppress(OSError):
            if not os.path.exists(self.path):
                with open(self.path, "wb") as file:
                    file.write(self.padded(b""))

    def write(self, content: bytes) -> None:
        """Replace the file's content. Raises OSError if there is no reserve, or it is too small."""
        if len(content) > self.size:
            raise OSError("the reserve is too small")
        descriptor = os.open(self.path, os.O_WRONLY)
        try:
            os.pwrite(descriptor, self.padded(content), 0)
        finally:
            os.close(descriptor)
        kept = f"{self.path}.next"
        os.link(self.file, kept)
        os.replace(self.path, self.file)
        os.replace(kept, self.path)

    def release(self) -> None:
        """Remove the reserve."""
        with contextlib.suppress(OSError):
            os.unlink(self.path)
