"""An SSH server at the user's end of a channel: `ssh` speaks to it over a pipe, it speaks to the platform.

    ssh ──pipe──▶ this server ──WebSocket, the user's token──▶ platform ──▶ envd ──▶ command

It asks for no authentication: whoever has the pipe has the token. A session is a channel's command, a forwarded port
another channel.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import asyncssh

from fermi.cli import remote_session
from fermi.client import FermiError, channels
from fermi.client.channels import PortStream, RunningCommand
from fermi.client.transport import ChannelAddress
from fermi.envd import protocol

CHUNK_BYTES = 1 << 16
MAX_QUEUED_CHUNKS = 16
"""Chunks from a client that may wait for the other end; then reading pauses."""
EXIT_NOT_OPENED = 255
LOOPBACK_NAMES = {"localhost", "127.0.0.1", "::1"}


def serve_pipe(address: ChannelAddress, key: asyncssh.SSHKey) -> None:
    """Serve one SSH connection over standard input and output, until it ends."""
    here, there = socket.socketpair()
    threading.Thread(target=_pump, args=(partial(os.read, 0), there.sendall, there), daemon=True).start()
    back = threading.Thread(target=_pump, args=(there.recv, _write_all, None), daemon=True)
    back.start()
    asyncio.run(serve_socket(address, here, key))
    back.join()


async def serve_socket(address: ChannelAddress, sock: socket.socket, key: asyncssh.SSHKey) -> None:
    """Serve one SSH connection over a socket, until it ends."""
    try:
        connection = await asyncssh.run_server(
            sock,
            server_factory=partial(_SshServer, address),
            server_host_keys=[key],
            encoding=None,
            line_editor=False,
            agent_forwarding=False,
            x11_forwarding=False,
            compression_algs=["none"],  # nothing is gained between two processes of one machine
        )
        await connection.wait_closed()
    except (OSError, asyncssh.Error):  # the client went away
        pass
    finally:
        sock.close()


def _pump(read: Callable[[int], bytes], write: Callable[[bytes], Any], ends: socket.socket | None) -> None:
    with suppress(OSError):
        while data := read(CHUNK_BYTES):
            write(data)
    if ends:
        with suppress(OSError):
            ends.shutdown(socket.SHUT_WR)


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


class _SshServer(asyncssh.SSHServer):
    def __init__(self, address: ChannelAddress) -> None:
        self._way = address
        self._undeclared: set[int] = set()

    def begin_auth(self, username: str) -> bool:
        return False

    def session_requested(self) -> "_SshSession":
        return _SshSession(self._way)

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> Any:
        return partial(self._to_port, dest_host, dest_port)

    def unix_connection_requested(self, dest_path: str) -> Any:
        return partial(self._relayed, ("unix", dest_path))

    async def _to_port(self, host: str, port: int, reader: Any, writer: Any) -> None:
        """Forward a declared port over a channel of its own, any other port over a relay process."""
        if host in LOOPBACK_NAMES and port not in self._undeclared:
            try:
                stream = await channels.port(self._way, number=port)
            except FermiError as error:
                if error.code != "PORT_UNKNOWN":
                    writer.close()
                    return
                self._undeclared.add(port)
            else:
                await _run_and_close(_copy_stream(stream, reader, writer), stream, writer)
                return
        await self._relayed(("tcp", host, port), reader, writer)

    async def _relayed(self, where: tuple[object, ...], reader: Any, writer: Any) -> None:
        try:
            running = await channels.command(self._way, remote_session.build_relay_command(*map(str, where)))
        except FermiError:
            writer.close()
            return
        await _run_and_close(_copy_command(running, reader, writer), running, writer)


async def _run_and_close(work: Any, channel: channels.Channel, writer: Any) -> None:
    try:
        await work
    except* (FermiError, OSError, asyncssh.Error):  # either side went away
        pass
    finally:
        await channel.close()
        writer.close()


async def _copy_stream(stream: PortStream, reader: Any, writer: Any) -> None:
    await channels.copy_both_ways(stream, reader, writer)


async def _copy_command(running: RunningCommand, reader: Any, writer: Any) -> None:
    async def up() -> None:
        while data := await reader.read(CHUNK_BYTES):
            await running.write(data)
        await running.close_stdin()

    feeding = asyncio.create_task(up())
    try:
        async for channel, data in running.output():
            if channel == protocol.OUT:
                writer.write(data)
                await writer.drain()
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)


class _SshSession(asyncssh.SSHServerSession[bytes]):
    """One command. What the client sends is queued: bytes, None = end of input, or a function to call."""

    _chan: Any

    def __init__(self, address: ChannelAddress) -> None:
        self._way = address
        self._words: list[str] | None = None
        self._term = ""
        self._size: tuple[int, int] | None = None
        self._line: asyncio.Queue[Any] = asyncio.Queue()
        self._writable = asyncio.Event()
        self._writable.set()
        self._task: asyncio.Task[None] | None = None

    # What the client asks for

    def connection_made(self, chan: Any) -> None:
        self._chan = chan

    def pty_requested(self, term_type: str, term_size: Any, term_modes: Any) -> bool:
        self._term, self._size = term_type, (term_size[0] or 80, term_size[1] or 24)
        return True

    def shell_requested(self) -> bool:
        return True

    def exec_requested(self, command: str) -> bool:
        self._words = remote_session.build_shell_command(command)
        return True

    def subsystem_requested(self, subsystem: str) -> bool:
        self._words = remote_session.build_sftp_command()
        return subsystem == "sftp"

    def session_started(self) -> None:
        self._task = asyncio.create_task(self._live())

    # What it sends

    def data_received(self, data: bytes, datatype: Any) -> None:
        self._line.put_nowait(data)
        if self._line.qsize() >= MAX_QUEUED_CHUNKS:
            self._chan.pause_reading()

    def eof_received(self) -> bool:
        self._line.put_nowait(None)
        return True  # it may still listen

    def signal_received(self, signal: str) -> None:
        self._line.put_nowait(lambda running: running.signal(signal))

    def break_received(self, msec: int) -> bool:
        self.signal_received("INT")
        return True

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        self._line.put_nowait(lambda running: running.resize(width, height))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        if self._task:
            self._task.cancel()

    # What becomes of it

    async def _live(self) -> None:
        try:
            code = await self._run()
        except FermiError as error:
            self._chan.write_stderr(f"fermi: {error.message}\n".encode())
            code = EXIT_NOT_OPENED
        with suppress(OSError):
            self._chan.exit(code & 0xFF)

    async def _run(self) -> int:
        env = {"TERM": self._term} if self._size else {}
        given = {name: value for name, value in self._chan.get_environment().items() if "\0" not in value}
        running = await channels.command(self._way, self._words, env={**given, **env}, tty=self._size)
        async with running:
            feeding = asyncio.create_task(self._feed(running))
            try:
                async for channel, data in running.output():
                    await self._writable.wait()
                    self._chan.write(data, asyncssh.EXTENDED_DATA_STDERR if channel == protocol.ERR else None)
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
            assert running.exit_code is not None
            return running.exit_code

    async def _feed(self, running: RunningCommand) -> None:
        with suppress(FermiError):  # whoever reads its output hears of it
            while True:
                sent = await self._line.get()
                if self._line.qsize() < MAX_QUEUED_CHUNKS:
                    self._chan.resume_reading()
                if sent is None:
                    await running.close_stdin()
                elif isinstance(sent, bytes):
                    await running.write(sent)
                else:
                    await sent(running)
