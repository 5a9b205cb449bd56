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
from fermi.inside.kernels import compute_begin_time, read_resident_bytes
from fermi.inside.user_processes import UserProcess
from fermi.telemetry import nvidia_smi

MAX_HOLDERS = 50
MAX_FILES = 4096
"""Open files of one process that are checked."""
MIN_KERNEL_BYTES = 64 << 20
"""Of memory: kernels with at least this count without an open GPU."""
TASK_VARIABLE = "FERMI_TASK_ID"
"""A variable of ranks and their children: training holds memory for as long as its lease."""
SMI_TIMEOUT_SECONDS = 5.0
MAX_NAME_LENGTH = 80
GPU_FIELDS = ("index", "uuid", "name", "memory.total", "memory.free")
PROCESS_FIELDS = ("gpu_uuid", "pid", "used_memory")
_DEVICE = re.compile(r"/dev/nvidia(\d+)")
MIB = 1 << 20


def find_holders(own: Sequence[UserProcess] | None = None, proc: str = "/proc") -> dict[str, Any]:
    """Return `gpus` (memory in bytes), `kernels`, and `holders`: processes with a GPU open, and kernels with much
    memory; those with the most GPU memory first, each with the process id of the `kernel` that it is or was started by,
    0 for none. `gpu_bytes` is left out if unknown."""
    mine = user_processes.list_own_processes() if own is None else own
    known = kernels.find_kernels(mine)
    parents, by_id = {one.pid: one.parent for one in mine}, {one.pid: one for one in mine}
    of_kernel = {pid: _find_kernel(pid, parents, known) for pid in by_id}
    open_gpus = {one.pid: found for one in mine if (found := _list_open_gpus(one.pid, proc))}
    gpus, told = _query_driver() if open_gpus or glob.glob("/dev/nvidia[0-9]*") else ([], {})
    if open_gpus.keys() & told.keys():  # the driver's ids are ours: the others only look, as nvidia-smi does
        open_gpus = {pid: numbers for pid, numbers in open_gpus.items() if pid in told}
    sizes = {
        pid: read_resident_bytes(pid) for pid in {*open_gpus, *(pid for pid, kernel in of_kernel.items() if kernel)}
    }
    holders: list[dict[str, Any]] = [
        {
            "pid": pid, "name": format_process_name(by_id[pid]), "since": compute_begin_time(by_id[pid]),
            "gpus": sorted(open_gpus.get(pid, ())), "rss_bytes": size, "kernel": of_kernel[pid],
            **(_choose_gpu_memory(pid, len(open_gpus), told) if pid in open_gpus else {}),
        }
        for pid, size in sizes.items()
        if (pid in open_gpus or size >= MIN_KERNEL_BYTES) and not user_processes.read_variables(pid).get(TASK_VARIABLE)
    ]  # fmt: skip
    holders.sort(key=lambda one: (-one.get("gpu_bytes", 0), -one["rss_bytes"]))
    return {"gpus": gpus, "holders": holders[:MAX_HOLDERS], "kernels": list(known.values())[:MAX_HOLDERS]}


def format_process_name(process: UserProcess) -> str:
    """Return the program's name and arguments."""
    program = os.path.basename(process.words[0])
    return " ".join([program, *process.words[1:]])[:MAX_NAME_LENGTH]


def _list_open_gpus(pid: int, proc: str) -> set[int]:
    """Return the numbers of `/dev/nvidiaN` that it has open. The control device alone, which every CUDA program opens,
    is no GPU."""
    found = set[int]()
    with contextlib.suppress(OSError), os.scandir(f"{proc}/{pid}/fd") as entries:
        for _, entry in zip(range(MAX_FILES), entries):  # noqa: B905 (strict is newer than 3.9)
            with contextlib.suppress(OSError):
                if device := _DEVICE.fullmatch(os.readlink(entry.path)):
                    found.add(int(device[1]))
    return found


def _query_driver() -> tuple[list[dict[str, Any]], dict[int, int]]:
    """Return the GPUs, and bytes by the process ids that the driver reports."""
    gpus = []
    for row in nvidia_smi.run_query(GPU_FIELDS, seconds=SMI_TIMEOUT_SECONDS) or ():
        memory = {name: nvidia_smi.get_int(row, f"memory.{name}") for name in ("total", "free")}
        gpus.append({
            "index": nvidia_smi.get_int(row, "index"), "uuid": row.get("uuid", ""), "name": row.get("name", ""),
            **{f"{name}_bytes": value * MIB for name, value in memory.items() if value is not None},
        })  # fmt: skip
    told = dict[int, int]()
    for row in nvidia_smi.run_query(PROCESS_FIELDS, "compute-apps", SMI_TIMEOUT_SECONDS) or ():
        pid, used = nvidia_smi.get_int(row, "pid"), nvidia_smi.get_int(row, "used_memory")
        if pid is not None and used is not None:
            told[pid] = told.get(pid, 0) + used * MIB
    return gpus, told


def _choose_gpu_memory(pid: int, holders: int, told: Mapping[int, int]) -> dict[str, int]:
    if pid in told:
        return {"gpu_bytes": told[pid]}
    return {"gpu_bytes": next(iter(told.values()))} if holders == 1 and len(told) == 1 else {}


def _find_kernel(pid: int, parents: Mapping[int, int], known: Mapping[int, Any]) -> int:
    while pid in parents:
        if pid in known:
            return pid
        pid = parents[pid]
    return 0
