"""Jupyter's kernels in an environment: their notebooks, and how one is ended. Standard library only, Python 3.9 or
later."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fermi.inside import protocol, user_processes
from fermi.inside.user_processes import Process
from fermi.runner import processes

MAX_SERVERS = 8
MAX_ANSWER_BYTES = 1 << 22
ANSWER_SECONDS = 1.0
"""For one Jupyter server."""
END_SECONDS = 5.0
"""How long a kernel may take to end."""
POLL_SECONDS = 0.05
LONGEST_NAME = 320


def find(own: Sequence[Process]) -> dict[int, dict[str, Any]]:
    """Return the kernels among these processes, by process id. `notebook`: the path that its server has set
    (jupyter_server, `JPY_SESSION_NAME`). `busy`: None if unknown."""
    found = {one.pid: _describe(one) for one in own if user_processes.is_kernel(one)}
    by_id = {one["id"]: one for one in found.values() if one["id"]}
    for server in _servers(own) if by_id else ():
        for said in _sessions(server):
            kernel = said.get("kernel")
            if isinstance(kernel, dict) and (known := by_id.get(str(kernel.get("id")))):
                known["busy"] = {"busy": True, "idle": False}.get(str(kernel.get("execution_state")), known["busy"])
                notebook = said.get("path") or said.get("name")
                if isinstance(notebook, str) and notebook:
                    known["notebook"] = notebook[:LONGEST_NAME]
    return found


def end(request: Mapping[str, Any]) -> dict[str, Any]:
    """End the kernel that is the process `pid`, which began at `started` (ticks since the machine's boot): by its
    Jupyter server, so that this does not restart it, or else by SIGTERM. Return `by`: which of the two. Raises
    InsideRefusedError if that process is no kernel of this user, or does not end."""
    identity = {"pid": int(request["pid"]), "start_time": int(request["started"])}
    own = user_processes.find_own()
    kernel = next((one for one in own if one.pid == identity["pid"] and one.started == identity["start_time"]), None)
    if kernel is None or not user_processes.is_kernel(kernel):
        raise protocol.RefusedError("INSIDE_KERNEL_GONE")
    number = user_processes.kernel_id(kernel)
    is_asked = number and any(_ask(server, "DELETE", f"kernels/{number}") is not None for server in _servers(own))
    if is_asked and _has_ended(identity):
        return {"by": "jupyter"}
    processes.send_signal(identity, signal.SIGTERM)
    if not _has_ended(identity):
        raise protocol.RefusedError("INSIDE_KERNEL_LIVES", seconds=round(END_SECONDS))
    return {"by": "signal"}


def since(one: Process) -> float:
    """Return when a process began, in unix seconds."""
    running_for = time.clock_gettime(time.CLOCK_BOOTTIME) - one.started / os.sysconf("SC_CLK_TCK")
    return round(time.time() - running_for, 1)


def resident(pid: int) -> int:
    """Return a process's resident memory in bytes; 0 if it has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _describe(one: Process) -> dict[str, Any]:
    notebook = user_processes.read_variables(one.pid).get("JPY_SESSION_NAME", "")
    return {
        "id": user_processes.kernel_id(one), "pid": one.pid, "started": one.started,
        "python": user_processes.python_of(one), "since": since(one), "notebook": notebook[:LONGEST_NAME],
        "busy": None, "rss_bytes": resident(one.pid),
    }  # fmt: skip


def _has_ended(identity: Mapping[str, Any]) -> bool:
    limit = time.monotonic() + END_SECONDS
    while processes.is_alive(identity):
        if time.monotonic() > limit:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _servers(own: Sequence[Process]) -> list[dict[str, Any]]:
    """Return the user's Jupyter servers, from their own runtime files."""
    folders = [
        user_processes.runtime_folder(user_processes.read_variables(one.pid))
        for one in own
        if user_processes.is_server(one)
    ]
    folders += [
        user_processes.runtime_folder(os.environ),
        *(os.path.dirname(user_processes.connection_file(one)) for one in own),
    ]
    found = _running_servers([folder for folder in dict.fromkeys(folders) if folder])
    return [server for _, server in zip(range(MAX_SERVERS), found)]  # noqa: B905 (strict is newer than 3.9)


def _running_servers(folders: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield servers as `list_running_servers` of jupyter_server finds them."""
    for folder in folders:
        for path in sorted(glob.glob(f"{glob.escape(folder)}/jpserver-*.json"))[:MAX_SERVERS]:
            with contextlib.suppress(OSError, ValueError, RecursionError), open(path, "rb") as file:
                said = json.loads(file.read(1 << 16))
                if isinstance(said, dict) and processes.start_time(int(said.get("pid") or 0)):
                    yield said


def _sessions(server: Mapping[str, Any]) -> list[dict[str, Any]]:
    try:
        found = json.loads(_ask(server, "GET", "sessions") or b"[]")
    except (ValueError, RecursionError):
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _ask(server: Mapping[str, Any], method: str, path: str) -> bytes | None:
    """Return the answer of a server's API (jupyter_server, `api.yaml`), or None if it requires more than its token,
    refuses, or does not answer in time. The request goes to the loopback address, whatever the server's own address is,
    so that its token goes nowhere else."""
    import http.client

    port, base = server.get("port"), str(server.get("base_url") or "/")
    if not isinstance(port, int) or not 0 < port < 65_536 or server.get("secure") or server.get("sock"):
        return None
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS if method == "GET" else END_SECONDS)
    try:
        headers = {"Authorization": f"token {server['token']}"} if server.get("token") else {}
        asking.request(method, f"{base.rstrip('/')}/api/{path}", headers=headers)
        answer = asking.getresponse()
        data = answer.read(MAX_ANSWER_BYTES)
        return data if answer.status in (200, 204) else None
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        asking.close()
