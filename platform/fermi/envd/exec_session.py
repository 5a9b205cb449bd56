"""Runs a command or a terminal for a client, exactly as long as its connection lasts. Standard library only, Python 3.9
or later: it also runs next to ranks."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import termios
import threading
from collections.abc import Callable, Mapping
from typing import Any

from fermi.envd import login_shell
from fermi.envd import protocol as wire
from fermi.envd.children import Child, Children
from fermi.envd.protocol import EnvdRefusedError

HANG_UP_SECONDS = 1.0
"""After its client has gone, a process that has not exited by then is killed."""
OUTPUT_TIMEOUT_SECONDS = 2.0
"""How long output is read that a process outside of the command's session keeps open."""
CHUNK_BYTES = 1 << 16
END_OF_INPUT = b"\x04"
SILENT_SECONDS = 3.0
"""After so long the start of a login shell that has printed nothing is explained to the client."""


def check_request(request: Mapping[str, Any]) -> None:
    """Check an "exec" request. Raises ProtocolError."""
    command = request.get("command")
    if command is not None and not (isinstance(command, list) and command and all(isinstance(w, str) for w in command)):
        raise wire.ProtocolError("no command")


class ExecSession:
    """One command. `start` raises EnvdRefusedError; `serve` ends with the command, and with the last frame."""

    def __init__(self, children: Children, request: Mapping[str, Any], cwd: str) -> None:
        self.tty: Mapping[str, Any] | None = request.get("tty")
        self.command = request.get("command") or login_shell.build_login_command()
        self._starts = bool(self.tty and not request.get("command"))  # a login shell that has printed nothing
        self._typed = b""
        self.cwd = os.path.join(cwd, os.path.expanduser(request.get("cwd") or "."))
        self.env = {**({"TERM": "xterm-256color"} if self.tty else {}), **(request.get("env") or {})}
        self._children = children
        self._ours: list[tuple[int, int]] = []  # channel, descriptor
        self._input = -1
        self.child: Child | None = None

    def start(self) -> None:
        """Start the process. Raises EnvdRefusedError."""
        try:
            self._begin()
        except (OSError, ValueError) as error:
            raise EnvdRefusedError("COMMAND_FAILED", why=getattr(error, "strerror", None) or str(error)) from error

    def _begin(self) -> None:
        if self.tty:
            ours, theirs = pty.openpty()
            self._ours, self._input = [(wire.OUT, ours)], os.dup(ours)
            streams = (theirs, theirs, theirs)
            self._resize(self.tty)
        else:
            (given, self._input), (out, out_there), (err, err_there) = (
                os.pipe2(os.O_CLOEXEC),
                os.pipe2(os.O_CLOEXEC),
                os.pipe2(os.O_CLOEXEC),
            )
            self._ours = [(wire.OUT, out), (wire.ERR, err)]
            streams = (given, out_there, err_there)
        try:
            self.child = self._children.start(self.command, streams, self.cwd, self.env, tty=bool(self.tty))
        finally:
            for stream in set(streams):
                os.close(stream)

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_data: Callable[[], None]
    ) -> None:
        """Forward input and output until the command or the connection ends. `on_data` is called for each piece."""
        assert self.child
        outputs = [asyncio.create_task(self._tell(channel, fd, writer, on_data)) for channel, fd in self._ours]
        heard = asyncio.create_task(self._hear(reader, on_data))
        silence = asyncio.create_task(self._tell_silence(writer))
        try:
            waited: list[asyncio.Future[Any]] = [heard, self.child.ended]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if self.child.ended.done():
                self._starts = False
                self._children.end_session(self.child.pid)
                await asyncio.wait(outputs, timeout=OUTPUT_TIMEOUT_SECONDS)
                with contextlib.suppress(OSError):
                    writer.write(wire.encode_control({"exit": self.child.ended.result()}))
                    await writer.drain()
        finally:
            await self._hang_up()
            for task in (heard, silence, *outputs):
                task.cancel()
            await asyncio.gather(heard, silence, *outputs, return_exceptions=True)
            writer.close()

    async def _tell_silence(self, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(SILENT_SECONDS if self._starts else 0)
        if not self._starts:
            return
        assert self.child
        starting = await _describe_start(self.child.pid)
        if self._starts:
            with contextlib.suppress(OSError):
                writer.write(wire.encode_control({"starting": starting}))
                await writer.drain()

    def _is_echo(self, data: bytes) -> bool:
        """Return True if a terminal's output is what was typed: until a shell edits lines itself, the kernel echoes
        keys."""
        keys = data.translate(None, b"\r\n")
        echoed, self._typed = self._typed.startswith(keys), self._typed[len(keys) :]
        return echoed

    async def _hang_up(self) -> None:
        """End the whole session after the client has gone."""
        assert self.child
        if not self.child.ended.done():
            self.child.signal_group(signal.SIGHUP)
            self.child.signal_group(signal.SIGCONT)
            await asyncio.wait((self.child.ended,), timeout=HANG_UP_SECONDS)
        self._children.end_session(self.child.pid)

    async def _tell(self, channel: int, fd: int, writer: asyncio.StreamWriter, on_data: Callable[[], None]) -> None:
        """Forward output. The end of a terminal is an error of the kernel's (EIO)."""
        reader = asyncio.StreamReader(limit=CHUNK_BYTES)
        source = os.fdopen(fd, "rb", buffering=0)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(CHUNK_BYTES):
                    on_data()
                    self._starts = self._starts and self._is_echo(data)
                    writer.write(wire.encode_frame(channel, data))
                    await writer.drain()
        finally:
            transport.close()

    async def _hear(self, reader: asyncio.StreamReader, on_data: Callable[[], None]) -> None:
        """Handle input to the end of the connection; an invalid frame ends it, too."""
        loop, frames = asyncio.get_running_loop(), wire.FrameDecoder()
        transport, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(self._input, "wb", buffering=0)
        )
        given = asyncio.StreamWriter(transport, protocol, None, loop)
        try:
            with contextlib.suppress(OSError, wire.ProtocolError, ValueError, TypeError, KeyError):
                while data := await reader.read(CHUNK_BYTES):
                    on_data()
                    for channel, payload in frames.feed(data):
                        if channel == wire.CONTROL:
                            self._obey(json.loads(payload), given)
                        elif channel == wire.IN and not transport.is_closing():
                            if self._starts:
                                self._typed += payload.translate(None, b"\r\n")
                            given.write(payload)
                            with contextlib.suppress(OSError):  # it reads no more
                                await given.drain()
        finally:
            transport.abort()

    def _obey(self, message: Mapping[str, Any], given: asyncio.StreamWriter) -> None:
        assert self.child
        if "resize" in message and self.tty:
            self._resize(message["resize"])
        if name := message.get("signal"):
            number = getattr(signal, f"SIG{str(name).removeprefix('SIG')}", None)
            if number is not None and not self.child.ended.done():
                self._signal(int(number))
        if message.get("end"):
            given.write(END_OF_INPUT) if self.tty else given.close()

    def _signal(self, number: int) -> None:
        """Signal the foreground group of a terminal, as its keys would."""
        assert self.child
        if self.tty:
            with contextlib.suppress(OSError):
                group = os.tcgetpgrp(self._ours[0][1])
                if group > 0:
                    os.killpg(group, number)
                    return
        self.child.signal_group(number)

    def _resize(self, size: Mapping[str, Any]) -> None:
        rows, columns = (
            max(1, min(int(size.get(name) or wire.DEFAULT_TERMINAL_SIZE[name]), 10_000)) for name in ("rows", "columns")
        )
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._ours[0][1], termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


async def _describe_start(pid: int) -> dict[str, Any]:
    """Return what `login_shell.describe_start` does. It may wait for a server that does not answer, so it runs in a
    thread of its own that no other client needs; unlike one of `asyncio.to_thread` it does not delay the process's end.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[dict[str, Any]] = loop.create_future()

    def answer(starting: dict[str, Any]) -> None:
        if not found.done():
            found.set_result(starting)

    def describe() -> None:
        starting = login_shell.describe_start(pid)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(answer, starting)

    threading.Thread(target=describe, name="describe start", daemon=True).start()
    return await found
