"""Finds the processes of an environment that hold memory that a training job would need: its GPUs', or much of its
host's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

from fermi.envd import children, jupyter
from fermi.runner import processes
from fermi.telemetry import gpus
from fermi.telemetry.proc_files import CounterRates

MIN_BYTES = 64 << 20
"""Of memory, without a GPU: processes with less are not reported."""
MAX_HOLDERS = 50
STANDBY_NAME = "fermi-standby"
"""The name of `fermi.runner.standby`."""
MAX_NAME_LENGTH = 80


class MemoryHolders:
    """Finds the processes. `visible`: the GPUs of the environment, as in CUDA_VISIBLE_DEVICES."""

    def __init__(self, visible: str | None) -> None:
        self._visible = visible
        self._rates = CounterRates()
        self._gpus = gpus.find_gpu_reader(visible, self._rates) if visible != "" else None

    def list_holders(
        self, pids: Iterable[int], now: float, idle: int | None
    ) -> tuple[list[dict[str, Any]], dict[str, int]]:
        """Return the processes, the largest first, and the process of each kernel. `idle`: the session of a service
        that holds nothing by itself; kernels and terminals have their own."""
        memory = self._on_gpus(now)
        ours = set(pids)
        told = {pid: fields for pid, fields in processes.list_living_processes() if pid in ours}
        commands = {pid: _read_command(pid) for pid in told}
        kernels = {pid: kernel for pid, command in commands.items() if (kernel := jupyter.find_kernel_id(command))}
        found: list[dict[str, Any]] = []
        for pid, fields in told.items():
            rss, held = int(fields[21]) * os.sysconf("SC_PAGE_SIZE"), int(memory.get(pid, 0))
            if (rss < MIN_BYTES and not held) or (int(fields[3]) == idle and not held):
                continue
            if processes.read_process_name(pid) == STANDBY_NAME:
                continue  # it releases its memory when a job starts
            found.append({
                "pid": pid, "name": commands[pid][:MAX_NAME_LENGTH], "since": children.compute_begin_time(fields),
                "rss_bytes": rss, "gpu_bytes": held, "kernel": _find_kernel(pid, told, kernels),
            })  # fmt: skip
        found.sort(key=lambda one: (-one["gpu_bytes"], -one["rss_bytes"]))
        return found[:MAX_HOLDERS], {kernel: pid for pid, kernel in kernels.items()}

    def _on_gpus(self, now: float) -> Mapping[int, float]:
        if self._gpus is None:
            return {}
        with contextlib.suppress(Exception):  # a driver that does not answer delays nothing
            self._gpus.read_gpus(now)
        return self._gpus.memory


def _find_kernel(pid: int, told: Mapping[int, list[bytes]], kernels: Mapping[int, str]) -> str:
    """Return the kernel that the process is, or was started by."""
    while pid in told:
        if pid in kernels:
            return kernels[pid]
        pid = int(told[pid][1])
    return ""


def _read_command(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        if words := file.read(4096).replace(b"\0", b" ").strip():
            program, space, rest = words.decode(errors="replace").partition(" ")
            return os.path.basename(program) + space + rest
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()
    return ""
