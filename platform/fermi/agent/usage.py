"""What workers use: their processes' CPU and memory, and their GPUs where `nvidia-smi` can be asked."""

import os
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fermi.runner import processes

SMI_SECONDS = 10.0
_QUERY = "index,utilization.gpu,memory.used,memory.total"
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
NOTHING = dict.fromkeys(("gpuUtilization", "gpuMemoryUsedMb", "gpuMemoryTotalMb", "cpuPercent", "memoryUsedMb"))


@dataclass(frozen=True, slots=True)
class Gpu:
    utilization: int | None
    used_mb: int | None
    total_mb: int | None


def ask_smi(query: str) -> list[list[str]] | None:
    """Rows of values; None where there is no such tool or it does not answer."""
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=SMI_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return [[value.strip() for value in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def gpus() -> dict[int, Gpu]:
    """By index; empty where there are none."""
    found = {}
    for row in ask_smi(_QUERY) or ():
        with suppress(ValueError):
            index, *values = row
            found[int(index)] = Gpu(*(int(value) if value.isdecimal() else None for value in values))
    return found


class Sampler:
    """`sample` compares with its last call: a process' share of the processor is that of the time between."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, float]] = {}

    def sample(self, workers: Iterable[tuple[str, int | None, Mapping[str, Any] | None]]) -> dict[str, dict[str, Any]]:
        """Of each worker (id, GPU index, its rank's identity), by id."""
        workers = list(workers)
        known = gpus() if any(gpu is not None for _, gpu, _ in workers) else {}
        found = {}
        for worker, index, leader in workers:
            usage: dict[str, Any] = dict(NOTHING)
            if index is not None and (gpu := known.get(index)):
                usage |= {"gpuUtilization": gpu.utilization, "gpuMemoryUsedMb": gpu.used_mb,
                          "gpuMemoryTotalMb": gpu.total_mb}  # fmt: skip
            if leader is not None:
                usage |= self._of_processes(worker, leader)
            found[worker] = usage
        return found

    def _of_processes(self, worker: str, leader: Mapping[str, Any]) -> dict[str, Any]:
        seconds, pages = 0.0, 0
        for member in processes.session_members([leader]):
            with suppress(OSError, IndexError):
                with open(f"/proc/{member['pid']}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                seconds += (int(fields[11]) + int(fields[12])) / _TICKS
                pages += int(fields[21])
        now = time.monotonic()
        before, at = self._before.get(worker, (seconds, now))
        self._before[worker] = seconds, now
        percent = 100 * (seconds - before) / (now - at) if now > at and seconds >= before else 0.0
        return {"cpuPercent": round(percent, 1), "memoryUsedMb": pages * _PAGE >> 20}
