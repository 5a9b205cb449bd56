"""How fast and how hot a node's GPUs are, by `nvidia-smi`, now and then and without waiting for it. Standard library
only, Python 3.9 or later. Without the program, or with one that fails, nothing is known.

Why a GPU is slower than it could be is a mask (`nvmlClocksEventReasons*` of NVML, nvml.h); an idle one is not slowed.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterable
from typing import Any

PERIOD_SECONDS = 30.0
PATIENCE_SECONDS = 20.0
MOST_BYTES = 1 << 16
FIELDS = "index,clocks.sm,clocks.max.sm,temperature.gpu,clocks_throttle_reasons.active"
COMMAND = ["nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits"]
HEAT, POWER, HARDWARE = 0x20 | 0x40, 0x04 | 0x80, 0x08


class Gpus:
    """Of this node. `told`: by index, what was found last."""

    def __init__(self) -> None:
        self.told: dict[int, dict[str, Any]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._output: int | None = None
        self._due = self._began = 0.0

    def look(self, now: float, pids: Iterable[int]) -> None:
        """To be called often; asks only while one of these processes has a GPU open."""
        if self._process:
            self._take(now)
        elif now >= self._due:
            self._due = now + PERIOD_SECONDS
            if any(indices(pid) for pid in pids):
                self._ask(now)

    def of(self, pid: int) -> dict[str, Any] | None:
        """The first one that the process has open."""
        return next((self.told[index] for index in sorted(indices(pid)) if index in self.told), None)

    def _ask(self, now: float) -> None:
        self._close()
        with contextlib.suppress(OSError):
            self._began, self._output = now, os.memfd_create("fermi-gpus")
            self._process = subprocess.Popen(
                COMMAND, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.DEVNULL
            )

    def _take(self, now: float) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            if now - self._began > PATIENCE_SECONDS:
                process.kill()
            return
        self._process = None
        if self._output is not None:
            self.told = parse(os.pread(self._output, MOST_BYTES, 0).decode(errors="replace"))
            self._close()

    def _close(self) -> None:
        if self._output is not None:
            os.close(self._output)
        self._output = None


def parse(text: str) -> dict[int, dict[str, Any]]:
    """By index. A figure that this GPU does not tell is left out."""
    found = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 5 or not fields[0].isdigit():
            continue
        figures = dict(zip(("clock", "most", "temperature"), fields[1:4]))  # noqa: B905 (strict is newer than 3.9)
        told: dict[str, Any] = {name: int(value) for name, value in figures.items() if value.isdigit()}
        with contextlib.suppress(ValueError):
            mask = int(fields[4], 16)
            why = next((name for name, bits in _WHY if mask & bits), "")
            told.update({"slowed": why} if why else {})
        found[int(fields[0])] = told
    return found


_WHY = (("heat", HEAT), ("power", POWER), ("hardware", HARDWARE))


def indices(pid: int) -> set[int]:
    """Of the GPUs that a process has open."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if match := re.fullmatch(r"/dev/nvidia(\d+)", os.readlink(f"/proc/{pid}/fd/{name}")):
                    found.add(int(match[1]))
    return found
