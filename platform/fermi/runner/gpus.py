"""How fast and how hot a node's GPUs are, by `nvidia-smi`, now and then and without waiting for it. Standard library
only, Python 3.9 or later. Without the program, or with one that fails, nothing is known."""

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
"""From one look to the next whether ranks have a GPU open."""
FEW_STEPS = 20
"""Steps, or looks at which figures had been printed, after which a rank that is to use a GPU has begun to."""
FIGURES = {"clocks.sm": "clock", "clocks.max.sm": "most", "temperature.gpu": "temperature"}
REASONS = "clocks_throttle_reasons.active"
FIELDS = ("index", *FIGURES, REASONS)


class Gpus:
    """Of this node. `told`: by index, what was found last."""

    def __init__(self) -> None:
        self.told: dict[int, dict[str, Any]] = {}
        self._beside = Beside(PERIOD_SECONDS)

    def look(self, now: float, pids: Iterable[int]) -> None:
        """To be called often; asks only while one of these processes has a GPU open."""
        if (text := self._beside.take(now)) is not None:
            self.told = parse(text)
        elif self._beside.is_due(now) and any(indices(pid) for pid in pids):
            self._beside.ask(nvidia_smi.command(FIELDS), now)

    def of(self, pid: int) -> dict[str, Any] | None:
        """The first one that the process has open."""
        return next((self.told[index] for index in sorted(indices(pid)) if index in self.told), None)


def parse(text: str) -> dict[int, dict[str, Any]]:
    """By index. A figure that this GPU does not tell is left out."""
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
    """Of the GPUs that a process has open."""
    with contextlib.suppress(OSError):
        return _indices(pid)
    return set()


def machine_has_gpus() -> bool:
    """Returns whether this machine shows GPUs of NVIDIA; on WSL and of other makers it shows none."""
    return bool(glob.glob(DEVICES))


def has_gpu_open(pids: Iterable[int]) -> bool | None:
    """Returns whether one of these processes has a GPU open; None where it cannot be read of all of them."""
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
    """Raises OSError where its descriptors cannot be read."""
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            if match := DEVICE.fullmatch(os.readlink(f"/proc/{pid}/fd/{name}")):
                found.add(int(match[1]))
    return found
