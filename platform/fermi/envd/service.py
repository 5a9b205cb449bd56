"""The service of a run: what it needs first, its start, restarts after crashes, and the cause if it is given up.

idle ──wanted──▶ preparing ──▶ starting ──▶ up ──crash──▶ starting …
                     └──────────────┴─────────┴──▶ failed      a lazy one is tried again when it is wanted again
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fermi.envd import editor, jupyter, port_forward
from fermi.envd.children import Child, Children
from fermi.runner import package_cache

START_TIMEOUT_SECONDS = 120.0
POLL_SECONDS = 0.1
MAX_RESTARTS, RESTART_WINDOW_SECONDS = 5, 600.0
MAX_SHORT_LIVES, SHORT_LIFE_SECONDS = 3, 10.0
"""After so many lives in a row that were no longer than this the service is given up."""
BACKOFF_SECONDS = 0.5
MAX_LAST_LINES, MAX_LAST_BYTES = 12, 2000
MAX_SOCKET_PATH_BYTES = 100
"""Of a Unix socket's path (sun_path has 108 bytes, see unix(7))."""
CHECK_JUPYTERLAB_PROGRAM = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('jupyterlab'))"
CHECK_IPYKERNEL_PROGRAM = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('ipykernel'))"


class ServiceError(Exception):
    """The service cannot go on. `code` has a text in `fermi.messages`."""

    def __init__(self, code: str, **params: Any) -> None:
        super().__init__(code)
        self.cause = {"code": code, "params": params}


class ServiceSupervisor:
    """Starts and supervises the service. `changed`: called whenever its status has changed."""

    def __init__(self, spec: Mapping[str, Any], children: Children, log: Callable[[bytes], None], changed: Any) -> None:
        self.spec, self.children, self._log, self._changed = spec, children, log, changed
        self.kind: str = spec["kind"]
        self.state = "idle"
        self.doing: dict[str, Any] | None = None
        self.cause: dict[str, Any] | None = None
        self.restarts = 0
        self.child: Child | None = None
        self.python: str = spec["python"]
        self.variables: dict[str, str] = {}
        self.folder = os.open(spec["service"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.socket = editor.SOCKET_NAME if self.kind == "vscode" else jupyter.SOCKET_NAME
        self._door = -1  # the editor's socket, which has no name any more
        self._task: asyncio.Task[None] | None = None
        self._link = ""  # a short name of the run's folder
        self._carrying: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._said: deque[str] = deque(maxlen=MAX_LAST_LINES)
        self.jupyter = jupyter.JupyterClient(self.target()) if self.kind == "jupyter" else None
        self._name_interpreter()

    def target(self) -> str:
        """Return the path of the service's socket."""
        if self.kind == "vscode":
            return f"/proc/{os.getpid()}/fd/{self._door}"
        return port_forward.build_socket_path(self.folder, self.socket)

    # --- what others want of it ---

    def want(self) -> None:
        """Start the service if it has not started, or was given up."""
        if self._task is None or (self._task.done() and self.state == "failed"):
            self._task = asyncio.create_task(self._live())

    async def come_up(self, seconds: float) -> None:
        """Wait until it is up. Raises ServiceError: it could not start, or not yet."""
        self.want()
        limit = time.monotonic() + seconds
        while self.state != "up":
            if self.state == "failed" and self.cause and self._task and self._task.done():
                raise ServiceError(self.cause["code"], **self.cause["params"])
            if (left := limit - time.monotonic()) <= 0:
                raise ServiceError("SERVICE_STARTING", kind=self.kind)
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), left)

    async def stop(self, grace_seconds: float) -> None:
        """End it. Jupyter ends its kernels itself when it is asked."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.child and not self.child.ended.done():
            self.child.signal_group(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self.child.ended), grace_seconds)
        if self._link:
            shutil.rmtree(self._link, ignore_errors=True)

    async def set_interpreter(self, base: str) -> None:
        """Choose the interpreter for all processes from now on: the environment's own one on top of `base`; `base` if
        it has none, or none can be created."""
        self.python = base
        self._name_interpreter()
        if own := self.spec.get("own"):
            command = [sys.executable, "-m", "fermi.envd.interpreter", base, own]
            try:
                self.python = os.path.join(await self._told(command, "", "PYTHON_NOT_MADE"), "bin", "python")
            except ServiceError as failed:
                self.write_note(f"fermi: {failed.cause['code']} {failed.cause['params']}")
                return
            self._name_interpreter()
            own_python = {"VIRTUAL_ENV": own, "FERMI_PYTHON": self.python}
            self.children.variables = {**self.children.variables, **own_python}

    # --- its life ---

    async def _live(self) -> None:
        self.cause = None
        try:
            await self._prepare()
            await self._keep()
        except ServiceError as error:
            self.cause = error.cause
            self._log(f"fermi: {error.cause['code']} {error.cause['params']}\n".encode())
            self._turn("failed")
        except OSError as error:
            why = f"{error.filename or ''} {error.strerror or error}".strip()
            self.cause = {"code": "SERVICE_CRASHED", "params": {"kind": self.kind, "exitCode": 0, "output": why}}
            self._turn("failed")

    async def _prepare(self) -> None:
        self._turn("preparing")
        if self.kind == "jupyter" and await self._fails([self.spec["lab"], "-c", CHECK_JUPYTERLAB_PROGRAM]):
            raise ServiceError("JUPYTERLAB_MISSING", python=self.spec["lab"], **_get_image_params(self.spec))
        packages = list(self.spec["packages"])
        if self.kind == "jupyter" and await self._fails([self.python, "-c", CHECK_IPYKERNEL_PROGRAM]):
            packages.append("ipykernel")
        if packages:
            wanted = os.path.join(self.spec["service"], "requirements.txt")
            with open(wanted, "w", encoding="utf-8") as file:
                file.write("\n".join(packages) + "\n")
            command = [sys.executable, "-m", "fermi.envd.packages", self.spec["python"], wanted, self.spec["cache"]]
            folder = await self._told(command, "INSTALLING_PACKAGES", "PACKAGES_FAILED")
            package_cache.acquire_environment(folder)  # to the end of the keeper
            await self.set_interpreter(os.path.join(folder, "bin", "python"))
        if self.kind == "vscode" and not self._editor():
            folder = await self._told(
                [sys.executable, "-m", "fermi.envd.editor", self.spec["tools"]],
                "INSTALLING_VSCODE", "VSCODE_MISSING", within=None,
            )  # fmt: skip
        if self.spec["start_script"] and self.kind != "custom":
            self._do("RUNNING_START_SCRIPT")
            code = await self._run(self._script())
            if code:
                raise ServiceError("START_SCRIPT_FAILED", exitCode=code, output=self._last())

    async def _keep(self) -> None:
        """Start it, and restart it after crashes, up to a limit within a time."""
        crashes: deque[float] = deque(maxlen=MAX_RESTARTS)
        short = 0
        while True:
            self._turn("starting", "STARTING_SERVICE", kind=self.kind)
            command = self._command()
            if command is None:
                self._turn("up")
                return
            self._begin(command)
            assert self.child
            began = time.monotonic()
            if await self._is_up():
                self._turn("up")
            code = await asyncio.shield(self.child.ended)
            self.child = None
            if self.kind == "custom" and code == 0:
                return  # it has done what it had to; what it left behind goes on
            self._log(f"fermi: the service ended with code {code}\n".encode())
            now = time.monotonic()
            short = short + 1 if now - began < SHORT_LIFE_SECONDS else 0
            often = len(crashes) == MAX_RESTARTS and now - crashes[0] < RESTART_WINDOW_SECONDS
            if short == MAX_SHORT_LIVES or often:
                raise ServiceError("SERVICE_CRASHED", kind=self.kind, exitCode=code, output=self._last())
            crashes.append(now)
            self.restarts += 1
            self._turn("starting", "STARTING_SERVICE", kind=self.kind)
            await asyncio.sleep(BACKOFF_SECONDS * len(crashes))

    async def _is_up(self) -> bool:
        """Return True once it is up, and False if it has ended before. Raises ServiceError when it takes too long."""
        limit = time.monotonic() + START_TIMEOUT_SECONDS
        assert self.child
        while not self.child.ended.done():
            if self.kind == "custom" or (self.jupyter and await self.jupyter.is_up()) or self._take_editor():
                return True
            if time.monotonic() > limit:
                self.child.signal_group(signal.SIGKILL)
                raise ServiceError("SERVICE_CRASHED", kind=self.kind, exitCode=0, output=self._last())
            await asyncio.sleep(POLL_SECONDS)
        return False

    def _take_editor(self) -> bool:
        """The editor accepts every connection, and other environments may run as the same user: once it listens, its
        socket file is removed, so that only the daemon, which has it open, reaches it."""
        if self.kind != "vscode":
            return False
        with contextlib.suppress(OSError):
            door = os.open(self.socket, os.O_PATH | os.O_CLOEXEC, dir_fd=self.folder)
            if self._door >= 0:
                os.close(self._door)
            self._door = door
            os.unlink(self.socket, dir_fd=self.folder)
            return True
        return False

    def _begin(self, command: Sequence[str]) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket, dir_fd=self.folder)
        nothing, (out, there) = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        try:
            self.child = self.children.start(
                command, (nothing, there, there), self.spec["workspace"], self.variables, kept=[self.folder]
            )
        finally:
            os.close(nothing)
            os.close(there)
        self._carrying = asyncio.create_task(self._carry(out))

    def _command(self) -> list[str] | None:
        """Return its command, or None if nothing runs. Its socket is named by the folder's descriptor, which it
        inherits."""
        socket = f"/proc/self/fd/{self.folder}/{self.socket}"
        if self.kind == "jupyter":
            self.variables = jupyter.write_settings(self.spec["service"], self.python, self.children.variables)
            self.variables.update(FERMI_SOCKET=socket, FERMI_WORKSPACE=self.spec["workspace"])
            return [self.spec["lab"], "-m", "jupyterlab", "--config", jupyter.get_config_path(self.spec["service"])]
        if self.kind == "vscode":
            return self._editor(os.path.join(self._short(), self.socket))
        return self._script() if self.spec["start_script"] else None

    def _short(self) -> str:
        """Return the run's folder by a name that is short enough for a socket's path. The editor starts itself a second
        time, without our descriptors."""
        folder: str = self.spec["service"]
        if len(os.fsencode(folder)) + len(self.socket) < MAX_SOCKET_PATH_BYTES:
            return folder
        if not self._link:
            self._link = tempfile.mkdtemp(prefix="fermi-")
            os.chmod(self._link, 0o711)
            os.symlink(folder, os.path.join(self._link, "s"))
        return os.path.join(self._link, "s")

    def _editor(self, socket: str = "") -> list[str] | None:
        path = self.children.variables.get("PATH")
        return editor.build_command(self.spec["tools"], path, socket, self.spec["workspace"], self.spec["home"])

    def _script(self) -> list[str]:
        path = os.path.join(self.spec["service"], "start")
        text = self.spec["start_script"]
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)
        if text.startswith("#!"):
            return [path]
        return [shutil.which("bash") or "/bin/sh", path]

    def _name_interpreter(self) -> None:
        """Put the interpreter first on the PATH of all processes. FERMI_PATH is for shells that read /etc/profile."""
        variables = self.children.variables
        before = (variables.get("PATH") or os.environ.get("PATH") or os.defpath).split(os.pathsep)
        folder = os.path.dirname(shutil.which(self.python) or self.python)
        path = os.pathsep.join(dict.fromkeys([folder, *before]))
        self.children.variables = {**variables, "PATH": path, "FERMI_PATH": path}

    # --- what runs before it ---

    async def _fails(self, command: Sequence[str]) -> bool:
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            child = self.children.start(command, (nothing, nothing, nothing), "/")
        finally:
            os.close(nothing)
        return await asyncio.shield(child.ended) != 0

    async def _run(self, command: Sequence[str]) -> int:
        self._begin(command)
        assert self.child
        try:
            return await asyncio.shield(self.child.ended)
        finally:
            self.child = None

    async def _told(self, command: Sequence[str], doing: str, failed: str, within: str | None = "preparing") -> str:
        """Run a module that prints lines of JSON, and return the folder that it made. `doing`: the step to report
        meanwhile, if any. Raises ServiceError."""
        if doing:
            self._do(doing, line="")
        nothing, (out, there) = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        try:
            child = self.children.start(
                command, (nothing, there, there), "/", {"PYTHONPATH": os.environ.get("PYTHONPATH", "")},
                within=within,
            )  # fmt: skip
        finally:
            os.close(nothing)
            os.close(there)
        self.child = child
        result: dict[str, Any] = {}
        try:
            async for line in read_lines(out):
                said = _parse_json(line)
                if "say" in said:
                    self._log(f"{said['say']}\n".encode())
                    self._do(doing, line=str(said["say"])[:200])
                elif said:
                    result = said
                else:
                    self._log(line + b"\n")
                    self._said.append(line.decode(errors="replace"))
            code = await asyncio.shield(child.ended)
        finally:
            self.child = None
        if "folder" in result:
            return str(result["folder"])
        params = {"output": self._last(), "why": self._last(), "exitCode": code}
        raise ServiceError(result.get("code") or failed, **(result.get("params") or params))

    async def _carry(self, out: int) -> None:
        """Write the service's output into the log."""
        async for line in read_lines(out):
            self._said.append(line.decode(errors="replace"))
            self._log(line + b"\n")

    # --- what is told of it ---

    def write_note(self, line: str) -> None:
        """Write a line into the log, and keep it among the last lines for a cause."""
        self._said.append(line)
        self._log(f"{line}\n".encode())

    def _last(self) -> str:
        return "\n".join(self._said)[-MAX_LAST_BYTES:]

    def _do(self, code: str, **params: Any) -> None:
        self.doing = {"code": code, "params": params}
        self._changed()

    def _turn(self, state: str, doing: str = "", **params: Any) -> None:
        self.state = state
        self.doing = {"code": doing, "params": params} if doing else None
        self._news.set()
        self._changed()


def _get_image_params(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"image": spec["image"]} if spec.get("image") else {}


def _parse_json(line: bytes) -> dict[str, Any]:
    """Return the object of a line, or an empty one: pip's own warnings come between."""
    with contextlib.suppress(ValueError):
        said = json.loads(line)
        return said if isinstance(said, dict) else {}
    return {}


async def read_lines(source: int) -> Any:
    """Yield lines without their ends, then close the descriptor. A longer line than 64 KiB comes in pieces."""
    reader = asyncio.StreamReader(limit=1 << 16)
    pipe = os.fdopen(source, "rb", buffering=0)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    rest = b""
    try:
        while data := await reader.read(1 << 16):
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                yield line
            if len(rest) > 1 << 16:
                yield rest
                rest = b""
        if rest:
            yield rest
    finally:
        transport.close()
