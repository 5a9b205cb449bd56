"""JupyterLab on a Unix socket: how it is started, and a client of its REST API.

The kernel decides who may connect, not a password: the server asks each connection for its peer's process
(SO_PEERCRED), and serves only the daemon's. Other environments may run as the same user; a mode of 0600 would admit
them, and a token would have to be in each request of a browser.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fermi.envd import port_forward

SOCKET_NAME = "jupyter.sock"
ANSWER_TIMEOUT_SECONDS = 10.0
MAX_ANSWER_BYTES = 1 << 22
DEFAULT_SETTINGS = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}
"""Settings of its page: otherwise it asks each new environment's user whether to fetch the project's news."""
_KERNEL = re.compile(r"kernel-([0-9a-fA-F-]{36})\.json")

CONFIG_TEXT = '''
import os, socket, struct
from jupyter_server.auth import IdentityProvider, User

KEEPER = int(os.environ["FERMI_KEEPER"])


class ByKeeper(IdentityProvider):
    """Whoever comes through the keeper has been let in by the platform."""

    auth_enabled = True
    login_available = False
    logout_available = False

    def get_user(self, handler):
        stream = handler.request.connection
        stream = getattr(stream, "stream", None) or handler.ws_connection.stream
        pid, _, _ = struct.unpack("3i", stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)  # as much as the kernel allows
        name = os.environ.get("USER") or "fermi"
        return User(name, name, name) if pid == KEEPER else None


c = get_config()
c.ServerApp.identity_provider_class = ByKeeper
c.IdentityProvider.token = ""
c.ServerApp.sock = os.environ["FERMI_SOCKET"]
c.ServerApp.sock_mode = "0600"
c.ServerApp.root_dir = os.environ["FERMI_WORKSPACE"]
c.ServerApp.open_browser = False
c.ServerApp.base_url = "/"
c.ServerApp.allow_root = True  # what it may reach is settled before it starts
c.ServerApp.allow_remote_access = True  # a door's host name is not this machine's
c.ServerApp.trust_xheaders = True  # whether a browser came by HTTPS
c.ServerApp.terminals_enabled = True
c.ServerApp.quit_button = False  # it would be started again
c.ServerApp.shutdown_no_activity_timeout = 0
c.LabApp.news_url = None
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"
c.FileContentsManager.delete_to_trash = False
c.KernelSpecManager.ensure_native_kernel = False
'''


def write_settings(folder: str, python: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Write the server's configuration into the run's folder, and return the variables that it is started with.
    `python`: what its kernels run in."""
    kernels, settings = os.path.join(folder, "share", "kernels", "python3"), os.path.join(folder, "config")
    os.makedirs(kernels, exist_ok=True)
    os.makedirs(os.path.join(settings, "labconfig"), exist_ok=True)
    spec = {
        "argv": [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "metadata": {"debugger": True},
    }
    for path, text in (
        (os.path.join(kernels, "kernel.json"), json.dumps(spec)),
        (os.path.join(settings, "labconfig", "default_setting_overrides.json"), json.dumps(DEFAULT_SETTINGS)),
        (get_config_path(folder), CONFIG_TEXT),
    ):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    paths = [os.path.join(folder, "share"), *filter(None, [variables.get("JUPYTER_PATH")])]
    configs = [settings, *filter(None, [variables.get("JUPYTER_CONFIG_PATH")])]
    return {
        "JUPYTER_RUNTIME_DIR": os.path.join(folder, "runtime"),
        "JUPYTER_PATH": os.pathsep.join(paths),
        "JUPYTER_CONFIG_PATH": os.pathsep.join(configs),
        "JUPYTERLAB_SETTINGS_DIR": "",
        "FERMI_KEEPER": str(os.getpid()),
    }


def get_config_path(folder: str) -> str:
    """Return the path of the configuration file."""
    return os.path.join(folder, "jupyter_config.py")


class JupyterClient:
    """A client of the server. `socket`: where it listens. A missing answer means unknown."""

    def __init__(self, socket: str) -> None:
        self.socket = socket

    async def is_up(self) -> bool:
        """Return True if JupyterLab answers: the server listens a moment before its extensions do."""
        status, _ = await self._ask("GET", "/lab")
        return status not in (0, 404)

    async def kernels(self) -> list[dict[str, Any]]:
        """Return the kernels as the API of environments has them, without their processes."""
        found, sessions = await self.get("/api/kernels"), await self.get("/api/sessions")
        names = {
            session["kernel"]["id"]: session.get("path") or session.get("name") or ""
            for session in sessions or ()
            if session.get("kernel")
        }
        return [
            {
                "id": kernel["id"],
                "name": names.get(kernel["id"]) or kernel.get("name", ""),
                "busy": kernel.get("execution_state") == "busy",
                "busy_at": _parse_time(kernel.get("last_activity")),
                "connections": kernel.get("connections", 0),
            }
            for kernel in found or ()
        ]

    async def end_kernel(self, kernel: str) -> bool:
        """End a kernel. Return False if there is no such kernel (any more), or no answer."""
        if not re.fullmatch(r"[0-9a-fA-F-]{36}", kernel):
            return False
        status, _ = await self._ask("DELETE", f"/api/kernels/{kernel}")
        return status == 204

    async def get(self, path: str) -> Any:
        """Return the parsed answer, or None if there is none with 200."""
        status, body = await self._ask("GET", path)
        with contextlib.suppress(ValueError):
            return json.loads(body) if status == 200 else None
        return None

    async def _ask(self, method: str, path: str) -> tuple[int, bytes]:
        try:
            return await asyncio.wait_for(self._exchange(method, path), ANSWER_TIMEOUT_SECONDS)
        except (OSError, ValueError, IndexError, asyncio.IncompleteReadError, TimeoutError):
            return 0, b""

    async def _exchange(self, method: str, path: str) -> tuple[int, bytes]:
        """Send an HTTP/1.0 request, whose answer ends with the connection. The cookie and the header have the same
        value, which is what the server's XSRF check compares (tornado's `check_xsrf_cookie`)."""
        reader, writer = await asyncio.open_connection(sock=await port_forward.connect_target(self.socket))
        try:
            head = f"{method} {path} HTTP/1.0\r\nHost: localhost\r\nCookie: _xsrf=keeper\r\nX-XSRFToken: keeper\r\n\r\n"
            writer.write(head.encode())
            await writer.drain()
            answer = bytearray()
            while data := await reader.read(1 << 16):
                answer += data
                if len(answer) > MAX_ANSWER_BYTES:
                    return 0, b""
            top, _, body = bytes(answer).partition(b"\r\n\r\n")
            return int(top.split()[1]), body
        finally:
            writer.close()


def find_kernel_id(command: str) -> str | None:
    """Return the id of the kernel that a process with this command line is, or None."""
    found = _KERNEL.search(command)
    return found[1] if found else None


def _parse_time(moment: str | None) -> float | None:
    try:
        return datetime.fromisoformat((moment or "").replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
