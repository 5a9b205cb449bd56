"""Many readers of event streams, in a process of their own: `python -m bench.readers`, with a JSON order on its first
line, and then a text to wait for on each. Answers are lines of JSON as well.

A reader does no more than look for the text in what it gets; `slow` ones take no byte until the order's last line.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

from bench.web import Web

GIVE_UP = 60.0


class Readers:
    """Use as a context: open from its beginning to its end, each on one of `paths`."""

    def __init__(self, web: Web, paths: Iterable[str], slow: int = 0) -> None:
        requests = [web.request("GET", path).decode() for path in paths]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.readers"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self._tell({"port": web.port, "requests": requests, "slow": slow})
        if (opened := self._hear()["opened"]) != len(requests):
            raise RuntimeError(f"{opened} of {len(requests)} streams opened")

    def expect(self, text: str) -> None:
        self._tell(text)

    def heard(self) -> list[float | None]:
        """When the expected text came to each (unix seconds); None: not within a minute."""
        found: list[float | None] = self._hear()["at"]
        return found

    def read(self) -> list[int]:
        """How many bytes each has got."""
        self._tell("")
        found: list[int] = self._hear()["bytes"]
        return found

    def _tell(self, what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> "Readers":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


class _Reader(asyncio.Protocol):
    def __init__(self, request: str) -> None:
        self.request = request.encode()
        self.opened = False
        self.bytes = 0
        self.at: float | None = None
        self._text = self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.bytes += len(data)
        self.opened = self.opened or b"event: status" in data
        if self._text and self.at is None:
            if self._text in self._rest + data:
                self.at = time.time()
            self._rest = data[-len(self._text) :]

    def expect(self, text: str) -> None:
        self._text, self._rest, self.at = text.encode(), b"", None


async def main() -> None:
    loop = asyncio.get_running_loop()
    order = json.loads(await asyncio.to_thread(sys.stdin.readline))
    readers = [_Reader(request) for request in order["requests"]]
    for reader in readers:
        await loop.create_connection(lambda reader=reader: reader, "127.0.0.1", order["port"])  # type: ignore[misc]
    await _until(lambda: all(reader.opened for reader in readers))
    for reader in readers[len(readers) - order["slow"] :]:
        reader.transport.pause_reading()
    print(json.dumps({"opened": sum(reader.opened for reader in readers)}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        if text := json.loads(line):
            for reader in readers:
                reader.expect(text)
            await _until(lambda: all(reader.at is not None for reader in readers))
            print(json.dumps({"at": [reader.at for reader in readers]}), flush=True)
        else:
            print(json.dumps({"bytes": [reader.bytes for reader in readers]}), flush=True)


async def _until(holds: Any) -> None:
    end = time.monotonic() + GIVE_UP
    while not holds() and time.monotonic() < end:
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main())
