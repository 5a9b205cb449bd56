"""Disks that are full, and how a runner's status gets through all the same. Standard library, Python 3.9 or later."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Any

FULL = 1 << 20
"""A disk with less than this is full: what is left are file systems' own crumbs."""


def shown(number_of_bytes: float) -> str:
    """As people read it: three digits and a unit, such as `41.2 GiB`."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = next((power for power in range(len(units)) if number_of_bytes < 1000 * 1024**power), len(units) - 1)
    return f"{number_of_bytes / 1024**power:.3g} {units[power]}"


def full(folders: Iterable[str]) -> dict[str, Any] | None:
    """The first of these folders whose disk has no room for what an ordinary user writes, with its figures in bytes."""
    for folder in folders:
        with contextlib.suppress(OSError):
            disk = os.statvfs(folder)
            free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
            if total and (free < FULL or (disk.f_files and not disk.f_favail)):
                return {"path": folder, "free": free, "total": total}
    return None


class Reserve:
    """Beside a file, one of the same size, whose blocks are there already: where a disk takes no more, it is written
    over and the two change places, which needs no room. Taken as soon as there is some."""

    def __init__(self, path: str, size: int) -> None:
        self.file, self.path, self.size = path, f"{path}.reserve", size

    def padded(self, content: bytes) -> bytes:
        return content.ljust(self.size)

    def take(self) -> None:
        with contextlib.suppress(OSError):
            if not os.path.exists(self.path):
                with open(self.path, "wb") as file:
                    file.write(self.padded(b""))

    def write(self, content: bytes) -> None:
        """Raises OSError where there is no reserve, or it is too small."""
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

    def give_back(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.path)
