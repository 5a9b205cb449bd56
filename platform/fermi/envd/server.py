"""Serves the connections of the environment daemon (see `protocol.py`)."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from fermi.envd import port_forward, protocol
from fermi.envd.exec_session import ExecSession, check_request
from fermi.envd.protocol import EnvdRefusedError
from fermi.envd.service import ServiceError
from fermi.envd.supervisor import EnvironmentDaemon
from fermi.runner import snapshot_upload

SERVICE_TIMEOUT_SECONDS = 8.0
"""How long a client waits for a service that starts; on its next connection it waits again."""
REQUEST_TIMEOUT_SECONDS = 10.0
"""How long a client may take to send its request."""
BUNDLE_FOLDER = str(Path(snapshot_upload.__file__).parents[2])
UPLOAD_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); from fermi.runner import snapshot_upload; "
    "sys.exit(snapshot_upload.main(sys.argv[2:]))"
)


async def start_server(keeper: EnvironmentDaemon, sock: socket.socket) -> asyncio.Server:
    """Return a server for a listening socket."""

    async def come(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await EnvdConnection(keeper, reader, writer).serve()
        writer.close()

    start = asyncio.start_unix_server if sock.family == socket.AF_UNIX else asyncio.start_server
    return await start(come, sock=sock, limit=4 * protocol.MAX_LINE_BYTES)


class EnvdConnection:
    """A connection of one client."""

    def __init__(self, keeper: EnvironmentDaemon, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.keeper, self.reader, self.writer = keeper, reader, writer

    async def serve(self) -> None:
        """Answer its request."""
        try:
            request = await asyncio.wait_for(self._request(), REQUEST_TIMEOUT_SECONDS)
            await self._open(request)
        except EnvdRefusedError as refused:
            await self._say(refused.said)
        except ServiceError as failed:
            await self._say({"ok": False, **failed.cause})
        except (protocol.ProtocolError, TimeoutError, asyncio.LimitOverrunError, ValueError, TypeError, KeyError):
            await self._say({"ok": False, "code": "KEEPER_REQUEST_INVALID", "params": {}})

    async def _request(self) -> dict[str, Any]:
        """Return the request. Its token is in it, or in a separate line before it."""
        said = protocol.parse_line(await self.reader.readline())
        known = hmac.compare_digest(str(said.pop("token", "")).encode(), self.keeper.token.encode())
        if not known:
            raise EnvdRefusedError("KEEPER_TOKEN_WRONG")
        return said or protocol.parse_line(await self.reader.readline())

    async def _open(self, request: dict[str, Any]) -> None:
        what = request.get("open")
        if what == "port":
            await self._port(request)
        elif what == "exec":
            await self._exec(request)
        elif what == "code":
            await self._code(request)
        elif what == "status":
            await self.keeper.update()
            told = self.keeper.build_status()
            await self._say(
                {"ok": True, **told, "doors": self.keeper.doors(), "processes": told["activity"]["holders"]}
            )
        elif what == "end-kernel":
            kernel = str(request.get("kernel", ""))
            if not await self.keeper.end_kernel(kernel):
                raise EnvdRefusedError("KERNEL_UNKNOWN", kernel=kernel[:80])
            await self._say({"ok": True})
        else:
            raise protocol.ProtocolError(f"nothing is called {what}")

    async def _say(self, message: dict[str, Any]) -> None:
        self.writer.write(protocol.encode_line(message))
        await self.writer.drain()

    # --- ports ---

    async def _port(self, request: dict[str, Any]) -> None:
        """Open a declared port, by name or number, or the service's own by its kind; no other ones."""
        door, number = request.get("door"), request.get("port")
        ports = {one["name"]: int(one["port"]) for one in self.keeper.spec["ports"]}
        target: port_forward.Target
        if door is not None and door == self.keeper.service.kind and door not in ports and door != "custom":
            await self.keeper.service.come_up(SERVICE_TIMEOUT_SECONDS)
            target = self.keeper.service.target()
        elif door in ports or number in ports.values():
            target = ports[door] if door in ports else int(number)  # type: ignore[arg-type]
            self.keeper.service.want()  # a start script may be what listens there
        else:
            raise EnvdRefusedError("PORT_UNKNOWN", port=str(door if door is not None else number)[:80])
        try:
            inside = await port_forward.connect_target(target)
        except OSError as error:
            raise EnvdRefusedError("PORT_CLOSED", port=str(door or number)) from error
        outside = self.writer.get_extra_info("socket")
        if request.get("hand") is True and outside.family == socket.AF_UNIX:
            await self._hand_over(inside, outside)
            return
        await self._say({"ok": True})
        with self._connected():
            await port_forward.join_streams((self.reader, self.writer), inside, self.keeper.used)

    async def _hand_over(self, inside: socket.socket, outside: Any) -> None:
        """Pass the connection; it counts as used until the client closes this one."""
        with inside, outside.dup() as plain:
            socket.send_fds(plain, [protocol.encode_line({"ok": True})], [inside.fileno()])
        self.keeper.used()
        with self._connected():
            while await self.reader.read(1 << 10):
                pass
            self.keeper.used()

    # --- commands ---

    async def _exec(self, request: dict[str, Any]) -> None:
        check_request(request)
        await self._run(request)

    async def _code(self, request: dict[str, Any]) -> None:
        """Send a folder, with the daemon's own interpreter, which imports nothing from the folder; confined as all
        commands are."""
        folder = os.path.normpath(os.path.join(self.keeper.spec["workspace"], str(request["path"])))
        if not os.path.isdir(folder):
            raise EnvdRefusedError("CODE_NO_FOLDER_THERE", path=str(request["path"])[:500])
        words = [sys.executable, "-I", "-c", UPLOAD_PROGRAM, BUNDLE_FOLDER, folder, json.dumps(dict(request["limits"]))]
        await self._run({"command": words})

    async def _run(self, request: dict[str, Any]) -> None:
        running = ExecSession(self.keeper.children, request, self.keeper.spec["workspace"])
        running.start()
        await self._say({"ok": True})
        self.keeper.used()
        with self._connected():
            await running.serve(self.reader, self.writer, self.keeper.used)

    @contextlib.contextmanager
    def _connected(self) -> Any:
        self.keeper.connections += 1
        self.keeper.save()
        try:
            yield
        finally:
            self.keeper.connections -= 1
            self.keeper.save()
