"""A WebSocket server that speaks `fermi.envd.protocol` as the platform does, with real processes behind it. It refuses
what the platform refuses: who brings no token, an environment that is not known, a port that was not declared."""

import asyncio
import fcntl
import http
import json
import os
import pty
import signal
import struct
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from fermi.envd import protocol

API = "/api/v1"


@dataclass
class FakeChannels:
    """`paths`: where a channel is. `doors`: declared ports by name. `requests`: every request so far."""

    url: str
    paths: set[str]
    doors: dict[str, int] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    requests: list[dict[str, Any]] = field(default_factory=list)
    handshakes: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    failing: list[int] = field(default_factory=list)
    """Statuses that the next handshakes get."""
    starting: dict[str, Any] | None = None
    """What a login shell is at, said before it prints."""
    may_open: threading.Event = field(default_factory=threading.Event)
    """Not set: a request to open something is not answered yet."""
    refusal: dict[str, Any] | None = None

    # What the platform refuses ----------------------------------------------------------------------------------------

    def check(self, _connection: ServerConnection, request: Request) -> Response | None:
        self.handshakes.append((request.path, dict(request.headers.raw_items())))
        if self.failing:
            return _refused(self.failing.pop(0), "SHORT_OF_SOMETHING")
        if request.headers.get("Authorization") != "Bearer secret":
            return _refused(401, "NOT_AUTHENTICATED")
        if request.path.removeprefix(API) not in self.paths:
            return _refused(404, "NOT_FOUND")
        return None

    # What it does -----------------------------------------------------------------------------------------------------

    async def serve(self, socket: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            request = json.loads(await socket.recv())
            self.requests.append(request)
            await asyncio.get_running_loop().run_in_executor(None, self.may_open.wait)
            if self.refusal:
                await socket.send(json.dumps({"ok": False, **self.refusal}))
            elif request["open"] == "exec":
                await self._exec(socket, request)
            elif request["open"] == "port":
                await self._port(socket, request)

    async def _port(self, socket: ServerConnection, request: dict[str, Any]) -> None:
        number = self.doors.get(request.get("door", ""), request.get("port"))
        if number not in self.doors.values():
            await socket.send(json.dumps({"ok": False, "code": "PORT_UNKNOWN", "params": {"port": str(number)}}))
            return
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        await socket.send(json.dumps({"ok": True}))

        async def up() -> None:
            async for message in socket:
                if isinstance(message, str):
                    writer.write_eof()
                else:
                    writer.write(message)
                    await writer.drain()

        task = asyncio.create_task(up())
        while data := await reader.read(1 << 16):
            await socket.send(data)
        await socket.send(json.dumps({"end": True}))
        await task
        writer.close()

    async def _exec(self, socket: ServerConnection, request: dict[str, Any]) -> None:
        words = request["command"] or ["/bin/sh"]
        settings: dict[str, Any] = {
            "env": {**os.environ, **self.env, **request["env"]},
            "cwd": request["cwd"] or None,
            "start_new_session": True,
            "preexec_fn": _by_default,
        }
        loop = asyncio.get_running_loop()
        if size := request["tty"]:
            master, slave = pty.openpty()
            _size(master, size)
            settings["preexec_fn"] = lambda: (_by_default(), fcntl.ioctl(0, termios.TIOCSCTTY, 0))
            process = await asyncio.create_subprocess_exec(*words, stdin=slave, stdout=slave, stderr=slave, **settings)
            os.close(slave)
            reads = [(protocol.OUT, lambda: loop.run_in_executor(None, _read, master))]
        else:
            master = -1
            three = {"stdin": -1, "stdout": -1, "stderr": -1}
            process = await asyncio.create_subprocess_exec(*words, **three, **settings)
            assert process.stdout
            assert process.stderr
            out, err = process.stdout, process.stderr
            reads = [(protocol.OUT, lambda: out.read(1 << 16)), (protocol.ERR, lambda: err.read(1 << 16))]
        await socket.send(json.dumps({"ok": True}))
        if self.starting and not request["command"]:
            await socket.send(bytes([protocol.CONTROL]) + json.dumps({"starting": self.starting}).encode())

        async def show(channel: int, read: Any) -> None:
            while data := await read():
                await socket.send(bytes([channel]) + data)

        async def take() -> None:
            try:
                await heard()
            finally:  # also where who asked has gone
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGHUP)

        async def heard() -> None:
            async for message in socket:
                assert isinstance(message, bytes)
                if message[0] == protocol.IN and master >= 0:
                    os.write(master, message[1:])
                elif message[0] == protocol.IN:
                    assert process.stdin
                    with suppress(OSError):
                        process.stdin.write(message[1:])
                        await process.stdin.drain()
                else:
                    self._control(process, master, json.loads(message[1:]))

        taking = asyncio.create_task(take())
        try:
            await asyncio.gather(*(show(channel, read) for channel, read in reads))
            code = await process.wait()
            said = json.dumps({"exit": code if code >= 0 else 128 - code}).encode()
            await socket.send(bytes([protocol.CONTROL]) + said)
        finally:
            taking.cancel()
            if master >= 0:
                os.close(master)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process._transport.close()  # its pipes too, while there is a loop: nobody waits for their ends

    def _control(self, process: asyncio.subprocess.Process, master: int, said: dict[str, Any]) -> None:
        if size := said.get("resize"):
            _size(master, size)
        elif name := said.get("signal"):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, getattr(signal, f"SIG{name}"))
        elif said.get("end") and process.stdin:
            process.stdin.close()


def _by_default() -> None:
    """As `fermi.envd.children` does: what the tests' own shell ignores, nothing below may trap."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


def _refused(status: int, code: str) -> Response:
    envelope = {"code": status, "error": code, "message": f"refused: {code}", "requestId": "req-1"}
    kind = Headers({"Content-Type": "application/json"})
    return Response(status, http.HTTPStatus(status).phrase, kind, json.dumps(envelope).encode())


def _size(master: int, size: dict[str, int]) -> None:
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", size["rows"], size["columns"], 0, 0))


def _read(master: int) -> bytes:
    try:
        return os.read(master, 1 << 16)
    except OSError:  # Linux says so where nobody has the other side any more
        return b""


@contextmanager
def channels(*paths: str, env: Mapping[str, str] | None = None) -> Iterator[FakeChannels]:
    loop = asyncio.new_event_loop()
    fake = FakeChannels("", {*paths}, env=env or {})
    fake.may_open.set()

    async def start() -> Server:
        return await serve(fake.serve, "127.0.0.1", 0, process_request=fake.check, compression=None, max_size=1 << 21)

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(start(), loop).result()
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def stop() -> None:
        """Whatever a test that failed left running."""
        server.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(server.wait_closed(), 20)

    try:
        yield fake
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
