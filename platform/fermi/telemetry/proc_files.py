"""Small files of /proc and /sys that are read again and again: kept open, read from their beginning. Standard library
only, Python 3.9 or later. What cannot be read is empty."""

from __future__ import annotations

import contextlib
import os

MAX_FILE_BYTES = 1 << 18
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcFiles:
    """Files below a root, which is another one in tests. To be closed."""

    def __init__(self, root: str = "/") -> None:
        self.root = root.rstrip("/")
        self._open: dict[str, int] = {}

    def path(self, name: str) -> str:
        """Return the path of a file below the root."""
        return self.root + name

    def read(self, name: str) -> bytes:
        """Return the content of a file that exists as long as the machine runs; it stays open."""
        with contextlib.suppress(OSError):
            if name not in self._open:
                self._open[name] = os.open(self.path(name), os.O_RDONLY | os.O_CLOEXEC)
            return self._whole(self._open[name])
        self._forget(name)
        return b""

    @staticmethod
    def _whole(descriptor: int) -> bytes:
        """Return the whole content. The kernel returns a list (of interfaces, of disks) by whole lines, a page of them
        at most: much less than a page is the end."""
        found = piece = os.pread(descriptor, MAX_FILE_BYTES, 0)
        while len(piece) > PAGE_BYTES // 2 and len(found) < MAX_FILE_BYTES:
            piece = os.pread(descriptor, MAX_FILE_BYTES, len(found))
            found += piece
        return found

    def once(self, name: str) -> bytes:
        """Return the content of a file that may go, such as a process's."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path(name), os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.read(descriptor, MAX_FILE_BYTES)
            finally:
                os.close(descriptor)
        return b""

    def number(self, name: str) -> int | None:
        """Return the number in a file; None where it is none."""
        text = self.read(name).strip()
        return int(text) if text.isdigit() else None

    def list(self, name: str) -> list[str]:
        """Return the names in a folder, sorted."""
        with contextlib.suppress(OSError):
            return sorted(os.listdir(self.path(name)))
        return []

    def close(self) -> None:
        """Close all files."""
        for name in list(self._open):
            self._forget(name)

    def _forget(self, name: str) -> None:
        with contextlib.suppress(KeyError, OSError):
            os.close(self._open.pop(name))


class CounterRates:
    """Increase of counters, per second or since the reading before. A counter that goes backwards was reset: nothing is
    known until it is read again."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, float]] = {}
        self._next: dict[str, tuple[float, float]] = {}

    def compute_rate(self, key: str, count: float, now: float) -> float | None:
        """Return the increase per second; None: not known. `now`: monotonic seconds."""
        self._next[key] = count, now
        before, at = self._before.get(key, (count, now))
        return (count - before) / (now - at) if now > at and count >= before else None

    def gain(self, key: str, count: float, now: float) -> float | None:
        """Return the increase since the sample before; None: not known."""
        self._next[key] = count, now
        before = self._before.get(key)
        return count - before[0] if before and count >= before[0] else None

    def turn(self) -> None:
        """Finish a sample: counters that were not read in it are forgotten."""
        self._before, self._next = self._next, {}
