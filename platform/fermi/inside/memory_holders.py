"""Finds the processes of an environment that hold memory that training would need: its GPUs', and that of its
notebooks. Standard library only, Python 3.9 or later.

A process id that the driver reports may be one of the machine's, which means nothing in a container, or belongs to
another process there. So a process counts only if it has a GPU's device open here (/proc/<pid>/fd), and the driver's
figure is its own only if the id exists here too, or both sides have exactly one process.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fermi.inside import kernels, user_processes
from fermi.inside.kernels import resident, since
from fermi.inside.user_processes import Process
from fermi.telemetry import nvidia_smi

MAX_HOLDERS = 50
MAX_FILES = 4096
"""Open files of one process that are checked."""
MUCH_BYTES = 64 << 20
"""Of memory: kernels with at least this count without an open GPU."""
OURS = "FERMI_TASK_ID"
"""A variable of ranks and their children: training holds memory for as long as its lease."""
SMI_SECONDS = 5.0
LONGEST_NAME = 80
GPU_FIELDS = ("index", "uuid", "name", "memory.total", "memory.free")
PROCESS_FIELDS = ("gpu_uuid", "pid", "used_memory")
_DEVICE = re.compile(r"/dev/nvidia(\d+)")
MIB = 1 << 20


def find(own: Sequence[Process] | None = None, proc: str = "/proc") -> dict[str, Any]:
    """Return `gpus` (memory in bytes), `kernels`, and `holders`: processes with a GPU open, and kernels with much
    memory; those with the most GPU memory first, each with the process id of the `kernel` that it is or was started by,
    0 for none. `gpu_bytes` is left out if unknown."""
    mine = user_processes.find_own() if own is None else own
    known = kernels.find(mine)
    parents, by_id = {one.pid: one.parent for one in mine}, {one.pid: one for one in mine}
    of_kernel = {pid: _of_kernel(pid, parents, known) for pid in by_id}
    open_gpus = {one.pid: found for one in mine if (found := _open_gpus(one.pid, proc))}
    gpus, told = _ask_driver() if open_gpus or glob.glob("/dev/nvidia[0-9]*") else ([], {})
    if open_gpus.keys() & told.keys():  # the driver's ids are ours: the others only look, as nvidia-smi does
        open_gpus = {pid: numbers for pid, numbers in open_gpus.items() if pid in told}
    sizes = {pid: resident(pid) for pid in {*open_gpus, *(pid for pid, kernel in of_kernel.items() if kernel)}}
    holders: list[dict[str, Any]] = [
        {
            "pid": pid, "name": name_of(by_id[pid]), "since": since(by_id[pid]),
            "gpus": sorted(open_gpus.get(pid, ())), "rss_bytes": size, "kernel": of_kernel[pid],
            **(_memory(pid, len(open_gpus), told) if pid in open_gpus else {}),
        }
        for pid, size in sizes.items()
        if (pid in open_gpus or size >= MUCH_BYTES) and not user_processes.read_variables(pid).get(OURS)
    ]  # fmt: skip
    holders.sort(key=lambda one: (-one.get("gpu_bytes", 0), -one["rss_bytes"]))
    return {"gpus": gpus, "holders": holders[:MAX_HOLDERS], "kernels": list(known.values())[:MAX_HOLDERS]}


def name_of(one: Process) -> str:
    """Return the program's name and arguments."""
    program = os.path.basename(one.words[0])
    return " ".join([program, *one.words[1:]])[:LONGEST_NAME]


def _open_gpus(pid: int, proc: str) -> set[int]:
    """Return the numbers of `/dev/nvidiaN` that it has open. The control device alone, which every CUDA program opens,
    is no GPU."""
    found = set[int]()
    with contextlib.suppress(OSError), os.scandir(f"{proc}/{pid}/fd") as entries:
        for _, entry in zip(range(MAX_FILES), entries):  # noqa: B905 (strict is newer than 3.9)
            with contextlib.suppress(OSError):
                if device := _DEVICE.fullmatch(os.readlink(entry.path)):
                    found.add(int(device[1]))
    return found


def _ask_driver() -> tuple[list[dict[str, Any]], dict[int, int]]:
    """Return the GPUs, and bytes by the process ids that the driver reports."""
    gpus = []
    for row in nvidia_smi.ask(GPU_FIELDS, seconds=SMI_SECONDS) or ():
        memory = {name: nvidia_smi.whole(row, f"memory.{name}") for name in ("total", "free")}
        gpus.append({
            "index": nvidia_smi.whole(row, "index"), "uuid": row.get("uuid", ""), "name": row.get("name", ""),
            **{f"{name}_bytes": value * MIB for name, value in memory.items() if value is not None},
        })  # fmt: skip
    told = dict[int, int]()
    for row in nvidia_smi.ask(PROCESS_FIELDS, "compute-apps", SMI_SECONDS) or ():
        pid, used = nvidia_smi.whole(row, "pid"), nvidia_smi.whole(row, "used_memory")
        if pid is not None and used is not None:
            told[pid] = told.get(pid, 0) + used * MIB
    return gpus, told


def _memory(pid: int, holders: int, told: Mapping[int, int]) -> dict[str, int]:
    if pid in told:
        return {"gpu_bytes": told[pid]}
    return {"gpu_bytes": next(iter(told.values()))} if holders == 1 and len(told) == 1 else {}


def _of_kernel(pid: int, parents: Mapping[int, int], known: Mapping[int, Any]) -> int:
    while pid in parents:
        if pid in known:
            return pid
        pid = parents[pid]
    return 0
