"""Run a program now and then without ever waiting for it: it may hang with the driver that it calls. Standard library
only, Python 3.9 or later."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence

TIMEOUT_SECONDS = 20.0
MAX_OUTPUT_BYTES = 1 << 16


class BackgroundCommand:
    """Program that runs in the background. `period`: seconds from one start to the next. It is killed where it takes
    longer than `TIMEOUT_SECONDS`."""

    def __init__(self, period: float) -> None:
        self._period = period
        self._process: subprocess.Popen[bytes] | None = None
        self._output: int | None = None
        self._due = self._began = 0.0

    def is_due(self, now: float) -> bool:
        """Return True once in a period, when no process runs."""
        if self._process or now < self._due:
            return False
        self._due = now + self._period
        return True

    def start(self, command: Sequence[str], now: float) -> None:
        """Start the program. `now`: monotonic seconds."""
        self._close()
        with contextlib.suppress(OSError):
            self._began, self._output = now, os.memfd_create("fermi-beside")
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.DEVNULL
            )

    def poll(self, now: float) -> str | None:
        """Return what it printed, once it has ended; empty where it failed or takes too long. None: it has not ended,
        or does not run."""
        if self._process is None:
            return None
        if (code := self._process.poll()) is None:
            if now - self._began <= TIMEOUT_SECONDS:
                return None
            self._process.kill()
            return ""
        self._process = None
        said = os.pread(self._output, MAX_OUTPUT_BYTES, 0) if self._output is not None and code == 0 else b""
        self._close()
        return said.decode(errors="replace")

    def _close(self) -> None:
        if self._output is not None:
            os.close(self._output)
        self._output = None
