"""Many readers of event streams in a process of their own: `python -m bench.readers`, with a JSON order on its first
line, and then one on each. Answers are lines of JSON as well.

A reader only searches for a text in what it gets, and counts lines.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

from bench.web import BenchWeb

TIMEOUT_SECONDS = 60.0
LINE = b'"text":'
MAX_LINE_BYTES = 64  # bytes of what is waited for
CHUNK = re.compile(rb"\r\n[0-9a-f]+\r\n")  # where a chunk of the body ends and the next one begins


class StreamReaders:
    """Readers, as a context manager: connected while it is entered, each to one of `paths`, from `position` on. The
    last `paused` ones read nothing until `go_on`."""

    def __init__(self, web: BenchWeb, paths: Iterable[str], paused: int = 0, position: str = "") -> None:
        resume = f"\r\nLast-Event-ID: {position}\r\n\r\n" if position else "\r\n\r\n"
        requests = [web.request("GET", path).decode().removesuffix("\r\n\r\n") + resume for path in paths]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.readers"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self._tell({"port": web.port, "requests": requests, "paused": paused})
        if (opened := self._hear()["opened"]) != len(requests):
            raise RuntimeError(f"{opened} of {len(requests)} streams opened")

    def expect(self, text: str) -> None:
        self._tell({"expect": text})

    def heard(self) -> list[float | None]:
        """Return when the expected text arrived at each reader that is not paused (unix seconds); None: not within a
        minute."""
        found: list[float | None] = self._hear()["at"]
        return found

    def go_on(self) -> None:
        """Let the paused readers read until the expected text has arrived at all."""
        self._tell({"go_on": True})
        self.heard()

    def lines(self) -> list[int]:
        """Return how many log lines each reader has got."""
        self._tell({})
        found: list[int] = self._hear()["lines"]
        return found

    def _tell(self, what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> "StreamReaders":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


class _Reader(asyncio.Protocol):
    def __init__(self, request: str) -> None:
        self.request = request.encode()
        self.opened = False
        self.lines = 0
        self.at: float | None = None
        self._text = self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.opened = self.opened or b"event: status" in data
        both = self._rest + data
        whole = CHUNK.sub(b"", both)
        self.lines += whole.count(LINE) - CHUNK.sub(b"", self._rest).count(LINE)
        if self._text and self.at is None and self._text in whole:
            self.at = time.time()
        self._rest = both[-MAX_LINE_BYTES:]

    def expect(self, text: str) -> None:
        self._text, self._rest, self.at = text.encode(), b"", None


async def main() -> None:
    loop = asyncio.get_running_loop()
    order = json.loads(await asyncio.to_thread(sys.stdin.readline))
    readers = [_Reader(request) for request in order["requests"]]
    for reader in readers:
        await loop.create_connection(lambda reader=reader: reader, "127.0.0.1", order["port"])  # type: ignore[misc]
    await _wait_until(lambda: all(reader.opened for reader in readers))
    reading, paused = readers[: len(readers) - order["paused"]], readers[len(readers) - order["paused"] :]
    for reader in paused:
        reader.transport.pause_reading()
    print(json.dumps({"opened": sum(reader.opened for reader in readers)}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        told = json.loads(line)
        if told.get("go_on"):
            for reader in paused:
                reader.transport.resume_reading()
            reading = readers
        elif text := told.get("expect"):
            for reader in readers:
                reader.expect(text)
        if told:
            await _wait_until(lambda reading=reading: all(reader.at is not None for reader in reading))
            print(json.dumps({"at": [reader.at for reader in reading]}), flush=True)
        else:
            print(json.dumps({"lines": [reader.lines for reader in readers]}), flush=True)


async def _wait_until(holds: Any) -> None:
    end = time.monotonic() + TIMEOUT_SECONDS
    while not holds() and time.monotonic() < end:
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main())
