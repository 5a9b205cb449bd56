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
from fermi.telemetry.slow_command import BackgroundCommand

PERIOD_SECONDS = 30.0
DEVICE_GLOB, DEVICE_PATTERN = "/dev/nvidia[0-9]*", re.compile(r"/dev/nvidia(\d+)")
OPEN_CHECK_SECONDS = 10.0
"""Between two checks whether ranks have a GPU open."""
MIN_STEPS = 20
"""Steps, or checks that found printed figures, after which a rank that uses a GPU must have opened it."""
FIGURE_FIELDS = {"clocks.sm": "clock", "clocks.max.sm": "most", "temperature.gpu": "temperature"}
REASONS_FIELD = "clocks_throttle_reasons.active"
QUERY_FIELDS = ("index", *FIGURE_FIELDS, REASONS_FIELD)


class GpuMonitor:
    """GPUs of this node. `told`: the last figures, by index."""

    def __init__(self) -> None:
        self.told: dict[int, dict[str, Any]] = {}
        self._beside = BackgroundCommand(PERIOD_SECONDS)

    def update(self, now: float, pids: Iterable[int]) -> None:
        """Start a query if one is due and one of these processes has a GPU open. Call it often."""
        if (text := self._beside.poll(now)) is not None:
            self.told = parse_figures(text)
        elif self._beside.is_due(now) and any(list_open_gpus(pid) for pid in pids):
            self._beside.start(nvidia_smi.build_command(QUERY_FIELDS), now)

    def find_figures(self, pid: int) -> dict[str, Any] | None:
        """Return the figures of the first GPU that the process has open, or None."""
        return next((self.told[index] for index in sorted(list_open_gpus(pid)) if index in self.told), None)


def parse_figures(text: str) -> dict[int, dict[str, Any]]:
    """Return the figures by GPU index. A figure that the GPU does not report is left out."""
    found = {}
    for row in nvidia_smi.parse_rows(text, QUERY_FIELDS):
        if (index := nvidia_smi.get_int(row, "index")) is None:
            continue
        figures = {name: nvidia_smi.get_int(row, field) for field, name in FIGURE_FIELDS.items()}
        told: dict[str, Any] = {name: value for name, value in figures.items() if value is not None}
        why = next((name for name in nvidia_smi.list_slowdown_reasons(row.get(REASONS_FIELD)) if name != "other"), "")
        found[index] = {**told, "slowed": why} if why else told
    return found


def list_open_gpus(pid: int) -> set[int]:
    """Return the indices of the GPUs that a process has open."""
    with contextlib.suppress(OSError):
        return _read_open_gpus(pid)
    return set()


def has_nvidia_gpus() -> bool:
    """Return True if this machine has NVIDIA device files; on WSL and for other vendors it has none."""
    return bool(glob.glob(DEVICE_GLOB))


def has_gpu_open(pids: Iterable[int]) -> bool | None:
    """Return True if one of these processes has a GPU open, or None if that cannot be read for all of them."""
    unknown, asked = False, False
    for pid in pids:
        asked = True
        try:
            if _read_open_gpus(pid):
                return True
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        except OSError:
            unknown = True
    return None if unknown or not asked else False


def _read_open_gpus(pid: int) -> set[int]:
    """Return the indices of open GPUs. Raises OSError if the descriptors of the process cannot be read."""
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            if match := DEVICE_PATTERN.fullmatch(os.readlink(f"/proc/{pid}/fd/{name}")):
                found.add(int(match[1]))
    return found
