"""Runs a command or a terminal next to a rank, on its node, where no environment daemon runs.

    python -m fermi.envd.rank_exec

Standard library only, Python 3.9 or later. Standard input and output are the stream, which an engine provides:

    ──▶ READY_LINE                   (`protocol.py`)
    ◀── {"env": {…}, "cwd": "/…", "without": ["…"], "head": "10.0.0.7", "first": true, "name": "task-x-1",
         "chosen": "/…", "python": "/…", "confine": {…}}
                                     a line: the rank's surroundings; all of it may be left out
    ◀── {"open": "exec", …}          and the rest as in `protocol.py`; no other request is served here

`env`: the rank's variables, with late values as `fermi.runner.late_values` writes them. `cwd`: the working directory;
by default the one of this program. `chosen`: where the node stores the interpreter of its ranks, if it has prepared
packages for them; `python`: what they run with otherwise, if not with this interpreter. `without`: variables that this
program was given and that must not be passed on. `head`: the head's address, for late values and for the network
interface that reaches it, as the rank's own runner chose it; `first`: that is this node. `confine`: the sandbox of the
ranks (`fermi.runner.sandbox`).

It ends with its stream, with its command, or when it is asked to (SIGTERM), and all that it has started ends before:
there is no run for which anything could stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import stat
import sys
from collections.abc import Mapping
from typing import Any

from fermi.envd import protocol as wire
from fermi.envd.children import Children
from fermi.envd.exec_session import ExecSession, check_request
from fermi.runner import code_delivery, interfaces, placeholders, processes
from fermi.runner.late_values import Late, decode_value
from fermi.runner.rank import prepend_interpreter_folder

REQUEST_TIMEOUT_SECONDS = 20.0
"""How long a client may take to send its request."""
MAX_ORDER_BYTES = 1 << 21  # bytes
STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class RankExecServer:
    """Serves one order."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        for name in order.get("without", ()):
            os.environ.pop(name, None)
        self.cwd = str(order.get("cwd") or os.getcwd())
        self.env = _build_env(order)
        self.confinements: dict[str, Any] = {}
        if order.get("confine"):
            from fermi.runner.sandbox import Sandbox

            name = str(order.get("name") or "beside")
            self.confinements["service"] = Sandbox(order["confine"], name, os.environ)
        self.children = Children(self.confinements, self.env, lambda: None)

    async def run(self, request: Mapping[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Start the command and serve it. Raises EnvdRefusedError."""
        self.children.listen()
        given = request.get("env") or {}
        path = given.get("PATH") or self.env.get("PATH") or os.environ.get("PATH", os.defpath)
        running = ExecSession(self.children, {**request, "env": {"FERMI_PATH": path, **given}}, self.cwd)
        running.start()
        writer.write(wire.encode_line({"ok": True}))
        await writer.drain()
        await running.serve(reader, writer, lambda: None)

    async def stop(self) -> None:
        """Kill all processes and remove the sandbox."""
        await self.children.end_all()
        for confinement in self.confinements.values():
            confinement.close()


def _build_env(order: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables as the runner has set them (`fermi.runner.prepare`)."""
    head = order.get("head")
    known = {Late.PYTHON: sys.executable, **({Late.HEAD_HOST: head} if head else {})}
    env = interfaces.build_interface_env(head, is_head=bool(order.get("first"))) if head else {}
    env.update({name: decode_value(value, known) for name, value in (order.get("env") or {}).items()})
    if order.get("chosen") and (python := code_delivery.read_chosen_interpreter(str(order["chosen"]))):
        env.update(code_delivery.build_interpreter_env(python, env))
    else:
        env.update(prepend_interpreter_folder(str(order.get("python") or sys.executable), {**os.environ, **env}))
    filled = placeholders.fill_env({**os.environ, **env})
    return {name: value for name, value in filled.items() if name in env or value != os.environ.get(name)}


async def serve_stream(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, known_order: Mapping[str, Any] | None = None
) -> None:
    """Serve one stream. `known_order`: the order, if the client does not send it."""
    beside = None
    try:
        writer.write(wire.READY_LINE)
        order = known_order or await _read_message(reader)
        request = await _read_message(reader)
        if request.get("open") != "exec":
            raise wire.ProtocolError("nothing else is opened here")
        check_request(request)
        beside = RankExecServer(order)
        await beside.run(request, reader, writer)
    except wire.EnvdRefusedError as refused:
        await _write_message(writer, refused.said)
    except (wire.ProtocolError, ValueError, TypeError, KeyError, AttributeError):
        await _write_message(writer, {"ok": False, "code": "KEEPER_REQUEST_INVALID", "params": {}})
    finally:
        if beside:
            await beside.stop()


async def _read_message(reader: asyncio.StreamReader) -> dict[str, Any]:
    coming = asyncio.ensure_future(reader.readline())
    await asyncio.wait((coming,), timeout=REQUEST_TIMEOUT_SECONDS)
    if not coming.done():
        coming.cancel()
        raise wire.ProtocolError("nothing was said")
    return wire.parse_line(coming.result())


async def _write_message(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):
        writer.write(wire.encode_line(message))
        await writer.drain()


async def _open_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a reader and a writer: of a socket, or of two descriptors of an engine (pipes, a terminal). Written data
    is sent when it is drained, because this process exits then."""
    if stat.S_ISSOCK(os.fstat(0).st_mode):
        reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=os.dup(0)), limit=MAX_ORDER_BYTES)
    else:
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=MAX_ORDER_BYTES)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(0), "rb", 0))
        transport, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(os.dup(1), "wb", 0)
        )
        writer = asyncio.StreamWriter(transport, protocol, None, loop)
    writer.transport.set_write_buffer_limits(0)
    return reader, writer


async def _main(known_order: Mapping[str, Any] | None) -> None:
    own = asyncio.current_task()
    assert own
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, own.cancel)
    with contextlib.suppress(OSError, asyncio.CancelledError):
        await serve_stream(*await _open_streams(), known_order)


def main(known_order: Mapping[str, Any] | None = None) -> int:
    """Serve standard input and output, and return the exit code."""
    processes.deny_tracing()
    asyncio.run(_main(known_order))
    return 0


if __name__ == "__main__":
    sys.exit(main())
