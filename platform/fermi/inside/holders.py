"""Who holds the GPUs' memory in an environment, and Jupyter's kernels there. Standard library only, Python 3.9
or later.

A process id that the driver tells may be one of the machine's, which means nothing in a container, or somebody else's
there. So a process counts only where it is seen here with a GPU's device open (/proc/<pid>/fd), and the driver's figure
is its own only where the id is seen here too, or both sides know one process alone.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fermi.inside import user_processes
from fermi.inside.user_processes import Process
from fermi.runner import processes
from fermi.telemetry import smi

MAX_HOLDERS = 50
MAX_FILES = 4096
"""Open files of one process that are looked at."""
MAX_SERVERS = 8
MAX_ANSWER_BYTES = 1 << 22
ANSWER_SECONDS = 1.0
"""Of one Jupyter server."""
SMI_SECONDS = 5.0
LONGEST_NAME = 80
GPU_FIELDS = ("index", "uuid", "name", "memory.total", "memory.free")
PROCESS_FIELDS = ("gpu_uuid", "pid", "used_memory")
_DEVICE = re.compile(r"/dev/nvidia(\d+)")
MIB = 1 << 20


def find(own: Sequence[Process] | None = None, proc: str = "/proc") -> dict[str, Any]:
    """Returns `gpus` (memory in bytes), `kernels`, and `holders`: processes with a GPU open, those with the most memory
    first, each with its `kernel` if it is one or was started by one. `gpu_bytes` is left out where it is not known."""
    mine = user_processes.find_own() if own is None else own
    kernels = {one.pid: _kernel(one) for one in mine if user_processes.is_kernel(one)}
    _add_sessions(kernels, mine)
    open_gpus = {one.pid: found for one in mine if (found := _open_gpus(one.pid, proc))}
    gpus, told = _ask_driver() if open_gpus or glob.glob("/dev/nvidia[0-9]*") else ([], {})
    if open_gpus.keys() & told.keys():  # the driver's ids are ours: the others only look, as nvidia-smi does
        open_gpus = {pid: numbers for pid, numbers in open_gpus.items() if pid in told}
    parents = {one.pid: one.parent for one in mine}
    by_id = {one.pid: one for one in mine}
    holders: list[dict[str, Any]] = [
        {
            "pid": pid, "name": name_of(by_id[pid]), "since": since(by_id[pid]), "gpus": sorted(numbers),
            "rss_bytes": _resident(pid), "kernel": _of_kernel(pid, parents, kernels),
            **_memory(pid, len(open_gpus), told),
        }
        for pid, numbers in open_gpus.items()
    ]  # fmt: skip
    holders.sort(key=lambda one: (-one.get("gpu_bytes", 0), -one["rss_bytes"]))
    return {"gpus": gpus, "holders": holders[:MAX_HOLDERS], "kernels": list(kernels.values())[:MAX_HOLDERS]}


def name_of(one: Process) -> str:
    program = os.path.basename(one.words[0])
    return " ".join([program, *one.words[1:]])[:LONGEST_NAME]


def since(one: Process) -> float:
    """When it began, in unix seconds."""
    running_for = time.clock_gettime(time.CLOCK_BOOTTIME) - one.started / os.sysconf("SC_CLK_TCK")
    return round(time.time() - running_for, 1)


def _kernel(one: Process) -> dict[str, Any]:
    """`notebook`: the path that its server has told it (jupyter_server, `JPY_SESSION_NAME`). `busy`: None where nobody
    says."""
    notebook = user_processes.read_variables(one.pid).get("JPY_SESSION_NAME", "")
    return {
        "id": user_processes.kernel_id(one), "pid": one.pid, "python": user_processes.python_of(one),
        "since": since(one),
        "notebook": notebook[:LONGEST_NAME * 4], "busy": None, "rss_bytes": _resident(one.pid),
    }  # fmt: skip


def _open_gpus(pid: int, proc: str) -> set[int]:
    """Which `/dev/nvidiaN` it has open. The control device alone, which every CUDA program opens, is no GPU."""
    found = set[int]()
    with contextlib.suppress(OSError), os.scandir(f"{proc}/{pid}/fd") as entries:
        for _, entry in zip(range(MAX_FILES), entries):  # noqa: B905 (strict is newer than 3.9)
            with contextlib.suppress(OSError):
                if device := _DEVICE.fullmatch(os.readlink(entry.path)):
                    found.add(int(device[1]))
    return found


def _ask_driver() -> tuple[list[dict[str, Any]], dict[int, int]]:
    """The GPUs, and bytes by the process ids that the driver tells."""
    gpus = []
    for row in smi.ask(GPU_FIELDS, seconds=SMI_SECONDS) or ():
        memory = {name: smi.whole(row, f"memory.{name}") for name in ("total", "free")}
        gpus.append({
            "index": smi.whole(row, "index"), "uuid": row.get("uuid", ""), "name": row.get("name", ""),
            **{f"{name}_bytes": value * MIB for name, value in memory.items() if value is not None},
        })  # fmt: skip
    told = dict[int, int]()
    for row in smi.ask(PROCESS_FIELDS, "compute-apps", SMI_SECONDS) or ():
        pid, used = smi.whole(row, "pid"), smi.whole(row, "used_memory")
        if pid is not None and used is not None:
            told[pid] = told.get(pid, 0) + used * MIB
    return gpus, told


def _memory(pid: int, holders: int, told: Mapping[int, int]) -> dict[str, int]:
    if pid in told:
        return {"gpu_bytes": told[pid]}
    return {"gpu_bytes": next(iter(told.values()))} if holders == 1 and len(told) == 1 else {}


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _of_kernel(pid: int, parents: Mapping[int, int], kernels: Mapping[int, Mapping[str, Any]]) -> str:
    while pid in parents:
        if pid in kernels:
            return str(kernels[pid]["id"])
        pid = parents[pid]
    return ""


def _add_sessions(kernels: Mapping[int, dict[str, Any]], own: Sequence[Process]) -> None:
    """What the user's Jupyter servers say of their kernels: which notebook each belongs to, and whether it is busy."""
    by_id = {one["id"]: one for one in kernels.values() if one["id"]}
    if not by_id:
        return
    folders = [
        user_processes.runtime_folder(user_processes.read_variables(one.pid))
        for one in own
        if user_processes.is_server(one)
    ]
    folders += [
        user_processes.runtime_folder(os.environ),
        *(os.path.dirname(user_processes.connection_file(one)) for one in own),
    ]
    for number, server in enumerate(_servers([folder for folder in dict.fromkeys(folders) if folder])):
        if number >= MAX_SERVERS:
            return
        for said in _sessions(server):
            kernel = said.get("kernel")
            if isinstance(kernel, dict) and (known := by_id.get(str(kernel.get("id")))):
                known["busy"] = {"busy": True, "idle": False}.get(str(kernel.get("execution_state")), known["busy"])
                notebook = said.get("path") or said.get("name")
                if isinstance(notebook, str) and notebook:
                    known["notebook"] = notebook[: LONGEST_NAME * 4]


def _servers(folders: Sequence[str]) -> Iterator[dict[str, Any]]:
    """As `list_running_servers` of jupyter_server finds them."""
    for folder in folders:
        for path in sorted(glob.glob(f"{glob.escape(folder)}/jpserver-*.json"))[:MAX_SERVERS]:
            with contextlib.suppress(OSError, ValueError, RecursionError), open(path, "rb") as file:
                said = json.loads(file.read(1 << 16))
                if isinstance(said, dict) and processes.start_time(int(said.get("pid") or 0)):
                    yield said


def _sessions(server: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What its sessions API answers; nothing where it wants more than its token, or does not answer in time. It is
    asked on the loopback address, whatever its own address is, so that its token goes nowhere else."""
    import http.client

    port, base = server.get("port"), str(server.get("base_url") or "/")
    if not isinstance(port, int) or not 0 < port < 65_536 or server.get("secure") or server.get("sock"):
        return []
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
    try:
        headers = {"Authorization": f"token {server['token']}"} if server.get("token") else {}
        asking.request("GET", f"{base.rstrip('/')}/api/sessions", headers=headers)
        answer = asking.getresponse()
        found = json.loads(answer.read(MAX_ANSWER_BYTES)) if answer.status == 200 else []
    except (OSError, ValueError, RecursionError, http.client.HTTPException):
        return []
    finally:
        asking.close()
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
