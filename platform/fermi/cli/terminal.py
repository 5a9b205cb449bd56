"""A remote command, attached to this terminal or to these pipes."""

import asyncio
import os
import queue
import signal
import termios
import threading
import tty
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from fermi.cli.error_handler import EXIT_INTERRUPTED
from fermi.cli.output import escape_controls, print_message
from fermi.cli.texts import _
from fermi.client import FermiError, channels
from fermi.client.channels import RunningCommand
from fermi.client.transport import ChannelAddress
from fermi.envd import protocol

STDIN, STDOUT, STDERR = 0, 1, 2
CHUNK_BYTES = 1 << 16
OPENING_NOTICE_SECONDS = 3.0
"""Seconds without a connection after which a terminal shows what it waits for; a shell reports by itself."""
RESET_SEQUENCE = b"\x1b[?1047l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?25h\x1b[0m"
"""Resets the terminal after a program that was cut off: main screen, no mouse, no bracketed paste, a cursor, no colour.
"""


def attach_command(
    address: ChannelAddress,
    words: Sequence[str] | None,
    *,
    cwd: str = "",
    env: Mapping[str, str] | None = None,
    terminal: bool = False,
    reads: bool = True,
) -> int:
    """Run a remote command and return its exit code. `terminal`: keys are sent one by one, and it gets a terminal of
    this one's size."""
    try:
        return asyncio.run(_attach_command(address, words, cwd, {**(env or {})}, terminal, reads))
    except DetachedError as left:
        return left.code


def is_terminal() -> bool:
    return os.isatty(STDIN) and os.isatty(STDOUT)


async def _attach_command(
    address: ChannelAddress, words: Sequence[str] | None, cwd: str, env: dict[str, str], terminal: bool, reads: bool
) -> int:
    if terminal:
        env = {"TERM": os.environ.get("TERM", "xterm"), **env}
    size = tuple(os.get_terminal_size(STDOUT)) if terminal else None
    opening = asyncio.ensure_future(channels.command(address, words, cwd=cwd, env=env, tty=size))  # type: ignore[arg-type]
    if terminal and not (await asyncio.wait([opening], timeout=OPENING_NOTICE_SECONDS))[0]:
        print_message(_("TERMINAL_OPENS"))
    async with await opening as running:
        with raw_mode() if terminal else _no_context():
            return await _AttachedTerminal(running, terminal, reads).until_end()


@contextmanager
def _no_context() -> Iterator[None]:
    yield


@contextmanager
def raw_mode() -> Iterator[None]:
    """Context in which the terminal is in raw mode; it is restored however the context ends."""
    before = termios.tcgetattr(STDIN)
    ended_well = False
    try:
        tty.setraw(STDIN, termios.TCSADRAIN)  # what was typed meanwhile is not lost
        yield
        ended_well = True
    finally:
        if not ended_well:
            with suppress(OSError):
                os.write(STDOUT, RESET_SEQUENCE)
        with suppress(termios.error):  # a terminal that was closed
            termios.tcsetattr(STDIN, termios.TCSADRAIN, before)


def describe_start(starting: Mapping[str, Any]) -> str:
    """Return what a login shell that has printed nothing is doing: see `fermi.envd.protocol`."""
    files = ", ".join(map(str, starting.get("files") or ()))
    command = str(starting.get("command") or "")
    parts = [_("SHELL_STARTS"), _("SHELL_READS", files=files) if files else ""]
    parts.append(_("SHELL_RUNS", command=command) if command else "")
    return escape_controls(" ".join(filter(None, parts)))


class DetachedError(Exception):
    """The user detached, or this process was signalled; `code` is the exit code."""

    def __init__(self, code: int) -> None:
        self.code = code


class EscapeSequence:
    """Recognises `~.` at the beginning of a line (detach) and `~~` (a `~`)."""

    def __init__(self) -> None:
        self._begins, self._held = True, False

    def feed(self, keys: bytes) -> tuple[bytes, bool]:
        """Return the keys to send, and whether to detach."""
        passed = bytearray()
        for key in keys:
            if self._held:
                self._held = False
                if key == ord("."):
                    return bytes(passed), True
                passed += b"~" if key == ord("~") else bytes([ord("~"), key])
                self._begins = key in b"\r\n"
            elif self._begins and key == ord("~"):
                self._held = True
            else:
                passed.append(key)
                self._begins = key in b"\r\n"
        return bytes(passed), False


class _AttachedTerminal:
    def __init__(self, running: RunningCommand, terminal: bool, reads: bool) -> None:
        self._running = running
        self._terminal = terminal
        self._reads = reads and _may_read()
        self._escape = EscapeSequence()
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._interrupts = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def until_end(self) -> int:
        watched = self._watch_signals()
        output = self._begin(self._show())
        if self._reads:
            threading.Thread(target=self._read, name="stdin", daemon=True).start()
        elif not self._terminal:
            self._begin(self._running.close_stdin())
        try:
            return await self._ended
        finally:
            for number in watched:
                self._loop.remove_signal_handler(number)
            output.cancel()
            for task in [*self._tasks]:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _show(self) -> None:
        shown = _OutputThread(self._loop)

        async def say_start(starting: Mapping[str, Any]) -> None:
            await shown.write(STDERR, f"{describe_start(starting)}\r\n".encode())

        self._running.on_start = say_start if self._terminal else None
        try:
            async for channel, data in self._running.output():
                await shown.write(STDOUT if channel == protocol.OUT else STDERR, data)
            assert self._running.exit_code is not None
            self._end(self._running.exit_code)
        except (FermiError, OSError) as error:  # also a reader of ours that went away
            self._end(error)

    def _read(self) -> None:
        """A thread's: a file, a pipe and a terminal are all read alike."""
        while True:
            try:
                data = os.read(STDIN, CHUNK_BYTES)
            except OSError:
                data = b""
            if self._loop.is_closed():
                return
            try:
                asyncio.run_coroutine_threadsafe(self._take(data), self._loop).result()
            except (FermiError, RuntimeError, asyncio.CancelledError):  # its end is told by what shows its output
                return
            if not data:
                return

    async def _take(self, data: bytes) -> None:
        if not self._terminal:
            await (self._running.write(data) if data else self._running.close_stdin())
            return
        passed, leaves = self._escape.feed(data)
        if passed:
            await self._running.write(passed)
        if leaves or not data:
            self._end(DetachedError(EXIT_INTERRUPTED))

    def _watch_signals(self) -> list[int]:
        handlers: dict[int, Callable[[], None]] = {
            number: lambda number=number: self._end(DetachedError(128 + number))  # type: ignore[misc]
            for number in (signal.SIGTERM, signal.SIGHUP)
        }
        if self._terminal:
            handlers[signal.SIGWINCH] = self._resized
        else:
            handlers[signal.SIGINT] = self._interrupted
        for number, handler in handlers.items():
            self._loop.add_signal_handler(number, handler)
        return [*handlers]

    def _resized(self) -> None:
        self._begin(self._running.resize(*os.get_terminal_size(STDOUT)))

    def _interrupted(self) -> None:
        """Handle Ctrl-C: interrupt the command, then kill it, then detach."""
        self._interrupts += 1
        if self._interrupts > 2:
            self._end(DetachedError(EXIT_INTERRUPTED))
            return
        self._begin(self._running.signal("INT" if self._interrupts == 1 else "KILL"))
        if self._interrupts == 1 and os.isatty(STDERR):
            print_message(_("INTERRUPT_PASSED_ON"))

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._loop.create_task(_ignore_client_errors(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _end(self, how: int | BaseException) -> None:
        if self._ended.done():
            return
        if isinstance(how, BaseException):
            self._ended.set_exception(how)
        else:
            self._ended.set_result(how)


async def _ignore_client_errors(work: Coroutine[Any, Any, None]) -> None:
    with suppress(FermiError):  # whoever shows the output hears of it, too
        await work


def _may_read() -> bool:
    """Return False for a terminal in whose background this process is: reading would stop it."""
    try:
        return not os.isatty(STDIN) or os.tcgetpgrp(STDIN) == os.getpgrp()
    except OSError:
        return False


class _OutputThread:
    """Writes in a thread of its own, which is not waited for at the end: a slow reader does not block the
    connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._todo: queue.SimpleQueue[tuple[int, bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="stdout", daemon=True).start()

    async def write(self, to: int, data: bytes) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        self._todo.put((to, data, done))
        await done

    def _work(self) -> None:
        while True:
            to, data, done = self._todo.get()
            failure: OSError | None = None
            try:
                while data:
                    data = data[os.write(to, data) :]
            except OSError as error:
                failure = error
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(_set_result, done, failure)


def _set_result(done: "asyncio.Future[None]", failure: OSError | None) -> None:
    if done.cancelled():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)
