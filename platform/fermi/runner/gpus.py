"""Clock rate and temperature of a node's GPUs, by `nvidia-smi`, queried from time to time without waiting. Standard
library only, Python 3.9 or later. Nothing is known if the program is missing or fails."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Iterable
from typing import Any

from fermi.telemetry import nvidia_smi
from fermi.telemetry.slow_command import Beside

PERIOD_SECONDS = 30.0
DEVICES, DEVICE = "/dev/nvidia[0-9]*", re.compile(r"/dev/nvidia(\d+)")
OPEN_SECONDS = 10.0
"""Between two checks whether ranks have a GPU open."""
FEW_STEPS = 20
"""Steps, or checks that found printed figures, after which a rank that uses a GPU must have opened it."""
FIGURES = {"clocks.sm": "clock", "clocks.max.sm": "most", "temperature.gpu": "temperature"}
REASONS = "clocks_throttle_reasons.active"
FIELDS = ("index", *FIGURES, REASONS)


class Gpus:
    """GPUs of this node. `told`: the last figures, by index."""

    def __init__(self) -> None:
        self.told: dict[int, dict[str, Any]] = {}
        self._beside = Beside(PERIOD_SECONDS)

    def look(self, now: float, pids: Iterable[int]) -> None:
        """Start a query if one is due and one of these processes has a GPU open. Call it often."""
        if (text := self._beside.take(now)) is not None:
            self.told = parse(text)
        elif self._beside.is_due(now) and any(indices(pid) for pid in pids):
            self._beside.ask(nvidia_smi.command(FIELDS), now)

    def of(self, pid: int) -> dict[str, Any] | None:
        """Return the figures of the first GPU that the process has open, or None."""
        return next((self.told[index] for index in sorted(indices(pid)) if index in self.told), None)


def parse(text: str) -> dict[int, dict[str, Any]]:
    """Return the figures by GPU index. A figure that the GPU does not report is left out."""
    found = {}
    for row in nvidia_smi.parse(text, FIELDS):
        if (index := nvidia_smi.whole(row, "index")) is None:
            continue
        figures = {name: nvidia_smi.whole(row, field) for field, name in FIGURES.items()}
        told: dict[str, Any] = {name: value for name, value in figures.items() if value is not None}
        why = next((name for name in nvidia_smi.reasons(row.get(REASONS)) if name != "other"), "")
        found[index] = {**told, "slowed": why} if why else told
    return found


def indices(pid: int) -> set[int]:
    """Return the indices of the GPUs that a process has open."""
    with contextlib.suppress(OSError):
        return _indices(pid)
    return set()


def machine_has_gpus() -> bool:
    """Return True if this machine has NVIDIA device files; on WSL and for other vendors it has none."""
    return bool(glob.glob(DEVICES))


def has_gpu_open(pids: Iterable[int]) -> bool | None:
    """Return True if one of these processes has a GPU open, or None if that cannot be read for all of them."""
    unknown, asked = False, False
    for pid in pids:
        asked = True
        try:
            if _indices(pid):
                return True
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        except OSError:
            unknown = True
    return None if unknown or not asked else False


def _indices(pid: int) -> set[int]:
    """Return the indices of open GPUs. Raises OSError if the descriptors of the process cannot be read."""
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            if match := DEVICE.fullmatch(os.readlink(f"/proc/{pid}/fd/{name}")):
                found.add(int(match[1]))
    return found
