"""Finds causes of failed ranks that only their own machine knows, and only at that time. Standard library only, Python
3.9 or later."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from fermi.runner import disk_space, ports, processes

_PORT_ERROR = re.compile(r"EADDRINUSE|[Aa]ddress already in use|\(errno: 98|No address added out of total")
"""How torch's store (torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp, socket.cpp), Python and gRPC, which JAX
meets through (add_port.cc), say that a port cannot be listened on."""
_PORT = re.compile(
    r"bind to \S*:(\d+) \(errno|port: (\d+), useIpv6|on address \('[^']*', (\d+)|resolved for '\S*:(\d+)'"
)
_RUNNER_MODULES = "fermi.runner."
_LOG = re.compile(r"/logs/([^/]+)/\d+/(\d+)\.log$")
"""Where the ranks of this machine's engine print to."""


def check_master_port(port: int | None) -> dict[str, Any] | None:
    """Return the cause if another process listens on the port of rank 0, else None. Call it before any rank is
    started."""
    if port is None or ports.is_port_free(port):
        return None
    return {"code": "MASTER_PORT_TAKEN", "port": port, "holder": ports.describe_holder(port) or None}


def find_unavailable_port(output: str) -> int | None:
    """Return the port that a rank could not listen on, by the last line that says so; 0 if that line names none, None
    if no line says so."""
    line = next((line for line in reversed(output.splitlines()) if _PORT_ERROR.search(line)), None)
    if line is None:
        return None
    named = _PORT.search(line)
    return int(next(filter(None, named.groups()))) if named else 0


def describe_port_holder(port: int, task: str, ranks: Mapping[int, int], uid: int) -> dict[str, Any]:
    """Return which process listens on a port that one of our ranks could not have, as the `kill` of its entry. `holder`
    is None if no visible process does, and only a pid if it does not belong to this task: the port may be made up by a
    rank. `task` and `rank` are those of another task's process. For our own, `started` says whether a rank started it.
    `task`: ours; `ranks`: by process; `uid`: the user that ranks run as."""
    pid, holder = ports.find_holders({port: ports.list_listening_ports().get(port, set())}).get(port, (0, None))
    if holder and _RUNNER_MODULES in holder:  # the words are those of the process that it was forked from
        holder = f"pid {pid}"
    said = {"by": "port", "port": port, "holder": holder}
    if pid in ranks:
        return {**said, "rank": ranks[pid], "started": False}
    if pid in processes.list_descendants():
        return {**said, "started": True}
    of_task, rank = find_owner(pid, uid) if pid else ("", None)
    if not of_task or of_task != task:
        return {**said, "holder": f"pid {pid}" if pid else None, "task": of_task or None, "rank": rank}
    leads = False
    with contextlib.suppress(OSError):  # a rank leads a session, and what it starts is in it
        leads = os.getsid(pid) == pid
    return {**said, "rank": rank, "started": not leads}


def find_owner(pid: int, uid: int) -> tuple[str, int | None]:
    """Return the task and the rank that a process belongs to, by its environment or, for a forked one, by its log file;
    empty and None if it belongs to none, or to another user than `uid`."""
    with contextlib.suppress(OSError, ValueError):
        if os.stat(f"/proc/{pid}").st_uid != uid:
            return "", None
        pairs = (word.partition("=") for word in processes.read_words(pid, "environ"))
        env = {name: value for name, _, value in pairs if name in ("FERMI_TASK_ID", "RANK")}
        if task := env.get("FERMI_TASK_ID"):
            return task, int(env.get("RANK", ""))
        if found := _LOG.search(os.readlink(f"/proc/{pid}/fd/1")):
            return found[1], int(found[2])
    return "", None


def describe_full_disk(spec: dict[str, Any], folders: Iterable[str], rank: int) -> dict[str, Any] | None:
    """Return the cause if a disk that a failed rank writes to, or one of `folders`, is full; else None."""
    logs = [rank["log"].rpartition("/")[0] for rank in spec["ranks"] if "log" in rank]
    checked = [spec["env"].get("FERMI_CHECKPOINT_DIR", ""), *logs[:1], *folders, spec["cwd"]]
    found = disk_space.find_full_disk([folder for folder in checked if folder])
    return {"code": "DISK_FULL", **found, "rank": rank} if found else None
