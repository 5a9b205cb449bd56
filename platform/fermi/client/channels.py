"""WebSocket channels into an environment or to a running rank: one for each forwarded port or command (the protocol is
in `fermi.envd.protocol`).

    async with await channels.port(address, door="jupyter") as stream: …
    async with await channels.command(address, ["nvidia-smi"]) as running: …

Connecting is retried, because nothing has been started by then. The request itself is sent once: a command whose answer
was lost may run.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from ssl import SSLContext
from typing import Any, Self

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI, WebSocketException

from fermi.client.errors import ConflictError, FermiError, ForbiddenError, UnreachableError, choose_error_type
from fermi.client.transport import UNAVAILABLE_STATUSES, ChannelAddress, compute_pause
from fermi.envd import protocol

OPEN_TIMEOUT_SECONDS = 30.0
ANSWER_TIMEOUT_SECONDS = 60.0  # an environment that begins at first use takes its time
PING_INTERVAL_SECONDS = 20.0  # so that nothing between here and there takes the connection for forgotten
PONG_TIMEOUT_SECONDS = 45.0
CHUNK_BYTES = 1 << 16
POLICY_VIOLATION = 1008  # who is in may no longer be: the right or the token is gone
END_MESSAGE = json.dumps({"end": True})


class Channel:
    """An open WebSocket. `answer` is the other end's answer to the request."""

    def __init__(self, socket: ClientConnection, way: ChannelAddress) -> None:
        self._socket = socket
        self._way = way
        self._reading = False
        self._beat = asyncio.create_task(self._keep())
        self.answer: dict[str, Any] = {}

    async def send_request(self, request: Mapping[str, Any]) -> None:
        """Send the request and store the answer. Raise ConflictError where the other end refuses it, UnreachableError
        where it does not answer within ANSWER_TIMEOUT_SECONDS."""
        with self._told():
            await self._socket.send(json.dumps(request))
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                    said = await self._socket.recv()
            except TimeoutError as error:
                raise UnreachableError(f"{self._way.url} did not open {self._way.path}", code="UNREACHABLE") from error
        try:
            self.answer = protocol.parse_line(said if isinstance(said, bytes) else said.encode())
        except protocol.ProtocolError as error:
            raise UnreachableError(f"{self._way.address}: {error}", code="UNEXPECTED_ANSWER") from error
        if not self.answer.get("ok"):
            code = str(self.answer.get("code") or "UNEXPECTED_ANSWER")
            problem = {"error": code, "message": self.answer.get("message") or code}
            hint = {"field": "", "hint": self.answer.get("hint") or ""}
            raise ConflictError.of_envelope(409, {**problem, "errors": [{**problem, **hint}]})

    async def send_message(self, message: bytes | str) -> None:
        """Send one message. Raise UnreachableError or ForbiddenError where the channel is closed."""
        with self._told():
            await self._socket.send(message)

    async def messages(self) -> AsyncIterator[bytes | str]:
        """Yield messages until the other end closes the channel. Raise FermiError where it closes with a reason."""
        with self._told():
            while True:
                self._reading = True
                try:
                    message = await self._socket.recv()
                except ConnectionClosed as closed:
                    if closed.rcvd is not None and closed.rcvd.code in (1000, 1001, 1005):
                        return
                    raise
                self._reading = False
                yield message

    async def close(self) -> None:
        self._beat.cancel()
        with suppress(OSError, WebSocketException, asyncio.CancelledError):
            await self._socket.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def _keep(self) -> None:
        """Ping the other end every PING_INTERVAL_SECONDS and abort the connection where no pong comes within
        PONG_TIMEOUT_SECONDS: a connection that was lost without notice would never be noticed otherwise. While nobody
        reads here, pongs are not read either, so silence means nothing then."""
        with suppress(ConnectionClosed):
            while True:
                await asyncio.sleep(PING_INTERVAL_SECONDS)
                answer = asyncio.ensure_future(await self._socket.ping())
                await asyncio.wait([answer], timeout=PONG_TIMEOUT_SECONDS)
                if not answer.done() and self._reading:
                    self._socket.transport.abort()
                    return

    def _told(self) -> "_ChannelErrors":
        return _ChannelErrors(self._way)


class _ChannelErrors:
    """Context manager that raises connection errors as the client's own exceptions."""

    def __init__(self, way: ChannelAddress) -> None:
        self._way = way

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        match error:
            case ConnectionClosed(rcvd=frame) if frame is not None and frame.reason:
                kind = ForbiddenError if frame.code == POLICY_VIOLATION else FermiError
                raise kind(frame.reason, code=frame.reason) from error
            case ConnectionClosed():
                raise UnreachableError(f"{self._way.url}: the connection broke off", code="CONNECTION_LOST") from error
            case OSError() | WebSocketException():
                raise UnreachableError(f"{self._way.url} does not answer: {error}", code="UNREACHABLE") from error


class PortStream(Channel):
    """The raw bytes of a forwarded port."""

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), CHUNK_BYTES):
            await self.send_message(data[start : start + CHUNK_BYTES])

    async def close_sending(self) -> None:
        """Close the sending direction."""
        await self.send_message(END_MESSAGE)

    async def read(self) -> AsyncIterator[bytes]:
        """Yield bytes until the other side closes its sending direction."""
        async for message in self.messages():
            if isinstance(message, str):
                if json.loads(message).get("end"):
                    return
            else:
                yield message


class RunningCommand(Channel):
    """A running command. `output` yields what it writes; afterwards `exit_code` is set. `on_start` is called once with
    `{"files": […], "command": "…"}` of a login shell that prints nothing: what it reads and runs as it starts."""

    exit_code: int | None = None
    on_start: Callable[[Mapping[str, Any]], Awaitable[None]] | None = None

    async def write(self, data: bytes) -> None:
        """Write to the command's standard input."""
        for start in range(0, len(data), CHUNK_BYTES):
            await self._frame(protocol.IN, data[start : start + CHUNK_BYTES])

    async def close_stdin(self) -> None:
        """Close the command's standard input."""
        await self._control({"end": True})

    async def resize(self, columns: int, rows: int) -> None:
        """Set the size of the command's terminal."""
        await self._control({"resize": {"columns": columns, "rows": rows}})

    async def signal(self, name: str) -> None:
        """Send a signal (`INT`, `TERM`, `KILL`, …) to the command and the processes that it started."""
        await self._control({"signal": name})

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield (protocol.OUT or protocol.ERR, bytes) until the command has ended. Raise UnreachableError where the
        channel ends without an exit code."""
        async for message in self.messages():
            if isinstance(message, str) or not message:
                continue
            channel, payload = message[0], message[1:]
            if channel in (protocol.OUT, protocol.ERR):
                yield channel, payload
            elif channel == protocol.CONTROL:
                said = protocol.parse_line(payload)
                if "exit" in said:
                    self.exit_code = int(said["exit"])
                    return
                if self.on_start and isinstance(said.get("starting"), dict):
                    await self.on_start(said["starting"])
        raise UnreachableError(f"{self._way.url} does not say how the command ended", code="CONNECTION_LOST")

    async def _frame(self, channel: int, payload: bytes) -> None:
        await self.send_message(bytes([channel]) + payload)

    async def _control(self, said: Mapping[str, Any]) -> None:
        await self._frame(protocol.CONTROL, json.dumps(said).encode())


async def port(way: ChannelAddress, *, door: str = "", number: int = 0) -> PortStream:
    """Open a channel to a declared port, by its name (`door`) or its number."""
    stream = PortStream(await _connect(way), way)
    return await _send_request(stream, {"open": "port", "door": door} if door else {"open": "port", "port": number})


async def command(
    way: ChannelAddress,
    words: Sequence[str] | None,
    *,
    cwd: str = "",
    env: Mapping[str, str] | None = None,
    tty: tuple[int, int] | None = None,
) -> RunningCommand:
    """Start a command and return its channel. `words` None: a login shell. `tty`: columns and rows of a terminal; None
    = pipes. Raise ConflictError where the environment refuses."""
    size = {"columns": tty[0], "rows": tty[1]} if tty else None
    request = {"open": "exec", "command": None if words is None else [*words], "cwd": cwd, "env": {**(env or {})}}
    running = RunningCommand(await _connect(way), way)
    return await _send_request(running, {**request, "tty": size})


async def _send_request(channel: Any, request: Mapping[str, Any]) -> Any:
    try:
        await channel.send_request(request)
    except BaseException:
        await channel.close()
        raise
    return channel


async def _connect(way: ChannelAddress) -> ClientConnection:
    attempt = 0
    while True:
        try:
            return await _connect_once(way)
        except FermiError as error:
            passing = isinstance(error, UnreachableError) or error.status in UNAVAILABLE_STATUSES | {429}
            if not passing or attempt >= way.retries:
                raise
            await asyncio.sleep(compute_pause(attempt, error.retry_after))
            attempt += 1


async def _connect_once(way: ChannelAddress) -> ClientConnection:
    try:
        return await connect(
            way.address,
            additional_headers={**way.headers},
            compression=None,  # what goes through is media, archives and keystrokes
            open_timeout=OPEN_TIMEOUT_SECONDS,
            ping_interval=None,  # see Channel._keep
            close_timeout=5.0,
            max_size=protocol.MAX_FRAME_BYTES + 1,
            ssl=_make_ssl_context() if way.address.startswith("wss:") else None,
        )
    except InvalidStatus as error:
        raise _make_refusal(error, way) from error
    except InvalidURI as error:
        raise UnreachableError(f"{way.url} is not an address: {error}", code="UNREACHABLE") from error
    except (OSError, WebSocketException, ImportError) as error:  # a SOCKS proxy takes a package of its own
        raise UnreachableError(
            f"{way.url} does not answer: {error or type(error).__name__}", code="UNREACHABLE"
        ) from error


def _make_ssl_context() -> SSLContext:
    """Return the TLS context that the rest of the client uses."""
    return httpx.create_ssl_context()


def _make_refusal(error: InvalidStatus, way: ChannelAddress) -> FermiError:
    response = error.response
    try:
        body = json.loads(bytes(response.body or b""))
    except ValueError:
        body = None
    status = response.status_code
    envelope = body if isinstance(body, dict) and "error" in body else {"message": f"HTTP {status} from {way.address}"}
    try:
        retry_after = float(response.headers.get("Retry-After", 0))
    except ValueError:
        retry_after = 0.0
    return choose_error_type(max(status, 400)).of_envelope(status, envelope, retry_after=retry_after)


@asynccontextmanager
async def listening(
    way: ChannelAddress, *, door: str, local: int = 0, failed: Callable[[FermiError], None] = lambda _: None
) -> AsyncIterator[int]:
    """Forward a declared port to the loopback interface of this machine and yield the local port number. `failed` is
    called with the error of each connection that could not be forwarded."""
    streams: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        streams.add(task)
        try:
            async with await port(way, door=door) as stream:
                await copy_both_ways(stream, reader, writer)
        except* FermiError as errors:  # this connection is closed, the next may do
            failed(next(error for error in _flatten_group(errors) if isinstance(error, FermiError)))
        except* OSError:
            pass
        finally:
            streams.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", local)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in [*streams]:
            task.cancel()
        await asyncio.gather(*streams, return_exceptions=True)


def _flatten_group(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _flatten_group(one)
    else:
        yield error


async def copy_both_ways(stream: PortStream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes in both directions until both have ended; a side that has closed its sending direction may still
    receive."""

    async def up() -> None:
        while data := await reader.read(CHUNK_BYTES):
            await stream.write(data)
        await stream.close_sending()

    async def down() -> None:
        async for data in stream.read():
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    async with asyncio.TaskGroup() as both:
        both.create_task(up())
        both.create_task(down())
