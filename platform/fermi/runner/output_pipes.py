"""Forwards the output of ranks through the runner, where it does not go directly into a file. Standard library only,
Python 3.9 or later."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Iterable, Mapping

from fermi.runner import record_frames

CHUNK_BYTES = 1 << 16
TAIL_BYTES = 2048
CLOSE_TIMEOUT_SECONDS = 5.0
"""How long the runner waits for the end of the pipes once its ranks have ended: another process may have one open."""


class PipedOutput:
    """The number of bytes of a rank's output, and the last of them. `frames`: called with frames that are to follow
    what was forwarded; None: they are dropped."""

    def __init__(self, frames: Callable[[bytes], None] | None = None) -> None:
        self.bytes, self.last, self.frames = 0, b"", frames

    def size(self) -> int:
        """Return the number of bytes so far."""
        return self.bytes

    def tail(self) -> bytes:
        """Return the last bytes."""
        return self.last

    def append_frames(self, records: Iterable[bytes]) -> None:
        """Forward records as frames."""
        if self.frames:
            own_line = not self.last or self.last.endswith(b"\n")
            self.frames(record_frames.format_frames(records, own_line=own_line))


class OutputPipes:
    """Pipes from ranks. `sinks`: by rank, called with each piece of output, and with no bytes at the end. `always`:
    called several times a second, with or without output. `frames`: by rank, called with frames of records; without it
    there are none, as in a terminal."""

    def __init__(
        self,
        sinks: Mapping[int, Callable[[bytes], None]],
        always: Iterable[Callable[[], None]] = (),
        frames: Mapping[int, Callable[[bytes], None]] | None = None,
    ) -> None:
        self.sinks, self.always = sinks, list(always)
        self.ranks: dict[int, int] = {}  # by open pipe
        self.carried = {rank: PipedOutput(frames.get(rank) if frames else None) for rank in sinks}

    def open(self, rank: int) -> int:
        """Return the end of a new pipe that the rank writes to."""
        pipe, write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(pipe, False)
        self.ranks[pipe] = rank
        return write

    def carry(self, seconds: float, *more: int) -> None:
        """Forward the output that there is, or arrives within `seconds`. `more`: other descriptors that end the
        wait."""
        ready, _, _ = select.select([*self.ranks, *more], [], [], seconds)
        for pipe in ready:
            if pipe in self.ranks:
                self._read(pipe)
        for call in self.always:
            call()

    def close(self) -> None:
        """Forward the rest and close the pipes."""
        end = time.monotonic() + CLOSE_TIMEOUT_SECONDS
        while self.ranks and time.monotonic() < end:
            self.carry(0.1)
        for pipe in list(self.ranks):
            self._end(pipe)

    def _read(self, pipe: int) -> None:
        try:
            data = os.read(pipe, CHUNK_BYTES)
        except BlockingIOError:
            return
        if data:
            carried = self.carried[self.ranks[pipe]]
            carried.bytes, carried.last = carried.bytes + len(data), (carried.last + data)[-TAIL_BYTES:]
            self.sinks[self.ranks[pipe]](data)
        else:
            self._end(pipe)

    def _end(self, pipe: int) -> None:
        os.close(pipe)
        self.sinks[self.ranks.pop(pipe)](b"")


class FileSink:
    """Appends the output of a rank to a file, which is made once there is any."""

    def __init__(self, path: str) -> None:
        self.path, self.file = path, -1

    def write(self, data: bytes) -> None:
        """Append the data; a file that cannot be opened gets none. No data: close the file."""
        if self.file < 0 and data:
            with contextlib.suppress(OSError):
                self.file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        if self.file >= 0 and data:
            write_all(self.file, data)
        elif self.file >= 0:
            os.close(self.file)
            self.file = -1


def write_all(descriptor: int, data: bytes) -> None:
    """Write all data. A reader that is gone, or a full disk, does not end the training."""
    with contextlib.suppress(OSError):
        while data:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:
                select.select([], [descriptor], [])
