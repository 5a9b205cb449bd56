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
from fermi.inside.user_processes import UserProcess
from fermi.runner import processes

MAX_SERVERS = 8
MAX_ANSWER_BYTES = 1 << 22
ANSWER_TIMEOUT_SECONDS = 1.0
"""For one Jupyter server."""
END_TIMEOUT_SECONDS = 5.0
"""How long a kernel may take to end."""
POLL_SECONDS = 0.05
MAX_NAME_LENGTH = 320


def find_kernels(own: Sequence[UserProcess]) -> dict[int, dict[str, Any]]:
    """Return the kernels among these processes, by process id. `notebook`: the path that its server has set
    (jupyter_server, `JPY_SESSION_NAME`). `busy`: None if unknown."""
    found = {one.pid: _describe_kernel(one) for one in own if user_processes.is_kernel(one)}
    by_id = {one["id"]: one for one in found.values() if one["id"]}
    for server in _list_servers(own) if by_id else ():
        for said in _list_sessions(server):
            kernel = said.get("kernel")
            if isinstance(kernel, dict) and (known := by_id.get(str(kernel.get("id")))):
                known["busy"] = {"busy": True, "idle": False}.get(str(kernel.get("execution_state")), known["busy"])
                notebook = said.get("path") or said.get("name")
                if isinstance(notebook, str) and notebook:
                    known["notebook"] = notebook[:MAX_NAME_LENGTH]
    return found


def end_kernel(request: Mapping[str, Any]) -> dict[str, Any]:
    """End the kernel that is the process `pid`, which began at `started` (ticks since the machine's boot): by its
    Jupyter server, so that this does not restart it, or else by SIGTERM. Return `by`: which of the two. Raises
    InsideRefusedError if that process is no kernel of this user, or does not end."""
    identity = {"pid": int(request["pid"]), "start_time": int(request["started"])}
    own = user_processes.list_own_processes()
    kernel = next((one for one in own if one.pid == identity["pid"] and one.started == identity["start_time"]), None)
    if kernel is None or not user_processes.is_kernel(kernel):
        raise protocol.InsideRefusedError("INSIDE_KERNEL_GONE")
    number = user_processes.parse_kernel_id(kernel)
    is_asked = number and any(
        _send_request(server, "DELETE", f"kernels/{number}") is not None for server in _list_servers(own)
    )
    if is_asked and _wait_for_end(identity):
        return {"by": "jupyter"}
    processes.send_signal(identity, signal.SIGTERM)
    if not _wait_for_end(identity):
        raise protocol.InsideRefusedError("INSIDE_KERNEL_LIVES", seconds=round(END_TIMEOUT_SECONDS))
    return {"by": "signal"}


def compute_begin_time(process: UserProcess) -> float:
    """Return when a process began, in unix seconds."""
    running_for = time.clock_gettime(time.CLOCK_BOOTTIME) - process.started / os.sysconf("SC_CLK_TCK")
    return round(time.time() - running_for, 1)


def read_resident_bytes(pid: int) -> int:
    """Return a process's resident memory in bytes; 0 if it has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _describe_kernel(process: UserProcess) -> dict[str, Any]:
    notebook = user_processes.read_variables(process.pid).get("JPY_SESSION_NAME", "")
    return {
        "id": user_processes.parse_kernel_id(process), "pid": process.pid, "started": process.started,
        "python": user_processes.find_interpreter(process), "since": compute_begin_time(process), "notebook":
        notebook[:MAX_NAME_LENGTH], "busy": None, "rss_bytes": read_resident_bytes(process.pid),
    }  # fmt: skip


def _wait_for_end(identity: Mapping[str, Any]) -> bool:
    limit = time.monotonic() + END_TIMEOUT_SECONDS
    while processes.is_alive(identity):
        if time.monotonic() > limit:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _list_servers(own: Sequence[UserProcess]) -> list[dict[str, Any]]:
    """Return the user's Jupyter servers, from their own runtime files."""
    folders = [
        user_processes.get_runtime_folder(user_processes.read_variables(one.pid))
        for one in own
        if user_processes.is_server(one)
    ]
    folders += [
        user_processes.get_runtime_folder(os.environ),
        *(os.path.dirname(user_processes.find_connection_file(one)) for one in own),
    ]
    found = _iter_running_servers([folder for folder in dict.fromkeys(folders) if folder])
    return [server for _, server in zip(range(MAX_SERVERS), found)]  # noqa: B905 (strict is newer than 3.9)


def _iter_running_servers(folders: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield servers as `list_running_servers` of jupyter_server finds them."""
    for folder in folders:
        for path in sorted(glob.glob(f"{glob.escape(folder)}/jpserver-*.json"))[:MAX_SERVERS]:
            with contextlib.suppress(OSError, ValueError, RecursionError), open(path, "rb") as file:
                said = json.loads(file.read(1 << 16))
                if isinstance(said, dict) and processes.read_start_time(int(said.get("pid") or 0)):
                    yield said


def _list_sessions(server: Mapping[str, Any]) -> list[dict[str, Any]]:
    try:
        found = json.loads(_send_request(server, "GET", "sessions") or b"[]")
    except (ValueError, RecursionError):
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _send_request(server: Mapping[str, Any], method: str, path: str) -> bytes | None:
    """Return the answer of a server's API (jupyter_server, `api.yaml`), or None if it requires more than its token,
    refuses, or does not answer in time. The request goes to the loopback address, whatever the server's own address is,
    so that its token goes nowhere else."""
    import http.client

    port, base = server.get("port"), str(server.get("base_url") or "/")
    if not isinstance(port, int) or not 0 < port < 65_536 or server.get("secure") or server.get("sock"):
        return None
    asking = http.client.HTTPConnection(
        "127.0.0.1", port, timeout=ANSWER_TIMEOUT_SECONDS if method == "GET" else END_TIMEOUT_SECONDS
    )
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
