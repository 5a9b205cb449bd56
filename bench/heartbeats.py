"""Send the heartbeats of many workers, each when it is due: `python -m bench.heartbeats`, a JSON order on standard
input.

As agents send them: a host's workers together, on a connection of its own, which the platform holds until there is
something new. Or each worker by itself, on a few connections, and answered at once.
"""

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from bench.load import CONNECTIONS

ON_A_HOST = 8
_WORKER = (
    '{"id":"%s","token":"%s","incarnation":"bench","sequence":%d,"generation":1,'
    '"process":{"name":"task-bench-1","rank":%d,"state":"running","pid":4711,"exitCode":null,"endedAt":null,'
    '"asked":false,"stillSince":null,"cause":null,"doing":null,"left":true},'
    '"usage":{"gpuUtilization":97,"gpuMemoryUsedMb":40123,"gpuMemoryTotalMb":81920,"cpuPercent":101.5,'
    '"memoryUsedMb":5123%s},"logs":{"offset":%d},"pulse":{"rank":%d,"at":%.3f,"phase":"step","step":%d,'
    '"stepped_at":%.3f,"step_seconds":0.251,"collectives":81,"waiting":0.02,"printed_at":%.3f,"gpu_bytes":42072408064,'
    '"rss_bytes":5372297216,"cpu":1.01,"throttled":0.0,"stolen":0.0,"squeezed":0.0,"gpu":null}}'
)
_PORTS = ',"ports":[{"port":22,"holder":"sshd"},{"port":9100,"holder":"node_exporter"}]'
_BODY = '{"waitSeconds":%s,"workers":[%s]}'
_HEAD = (
    "POST /api/v1/workers/heartbeat HTTP/1.1\r\nHost: localhost:%d\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"
    "Connection: keep-alive\r\nUser-Agent: python-httpx/0.28.1\r\nContent-Length: %d\r\n"
    "Content-Type: application/json\r\n\r\n"
)


def make_worker_id(number: int) -> str:
    return f"gn{number // ON_A_HOST}-{number % ON_A_HOST}"


def _make_heartbeat(number: int, sequence: int, moment: float) -> str:
    """Return the heartbeat of a worker whose rank trains; a host's first one also has the ports in use."""
    key, ports = make_worker_id(number), "" if number % ON_A_HOST else _PORTS
    return _WORKER % (key, key, sequence, number, ports, sequence, number, moment, sequence, moment, moment)


@dataclass
class HeartbeatLoad:
    """The order. `hold`: for how many seconds the platform holds what hosts send; 0: each worker by itself, answered at
    once."""

    port: int
    workers: int
    interval: float
    seconds: float
    first: int  # the first round's sequence
    hold: float = 0.0
    took: list[float] = field(default_factory=list)
    failed: int = 0

    @property
    def rounds(self) -> int:
        return int(self.seconds / self.interval)

    def due(self) -> Any:
        """(seconds from the beginning, worker, sequence), in order."""
        for round_ in range(self.rounds):
            for number in range(self.workers):
                yield (round_ + number / self.workers) * self.interval, number, self.first + round_

    async def run(self) -> dict[str, float]:
        spent = time.process_time()
        self.began = time.perf_counter() + 0.1
        if self.hold:
            await asyncio.gather(*(self._host(number) for number in range(0, self.workers, ON_A_HOST)))
        else:
            schedule = self.due()
            await asyncio.gather(*(self._connection(schedule) for _ in range(4 * CONNECTIONS)))
        wall = time.perf_counter() - self.began
        self.took.sort()

        def within(share: float) -> float:
            return 1e3 * self.took[min(int(len(self.took) * share), len(self.took) - 1)]

        return {
            "answered": len(self.took) * (ON_A_HOST if self.hold else 1), "failed": self.failed,
            "median_ms": within(0.5), "p95_ms": within(0.95), "p99_ms": within(0.99),
            "busy": (time.process_time() - spent) / wall, "last": self.first + self.rounds - 1,
        }  # fmt: skip

    async def _host(self, first: int) -> None:
        """Send at once after each answer, as an agent does, and otherwise once per interval."""
        at = first / self.workers * self.interval
        await asyncio.sleep(max(0.0, self.began + at - time.perf_counter()))
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for round_ in range(self.rounds):
            due, sequence = self.began + at + round_ * self.interval, self.first + round_
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            said = [_make_heartbeat(number, sequence, time.time()) for number in range(first, first + ON_A_HOST)]
            began = time.perf_counter()
            await self._ask(reader, writer, _BODY % (self.hold, ",".join(said)), ON_A_HOST)
            self.took.append(time.perf_counter() - max(began, due) - self.hold)
        writer.close()

    async def _connection(self, schedule: Any) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for moment, number, sequence in schedule:
            due = self.began + moment
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await self._ask(reader, writer, _BODY % (0, _make_heartbeat(number, sequence, time.time())), 1)
            self.took.append(time.perf_counter() - due)
        writer.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: str, workers: int) -> None:
        writer.write((_HEAD % (self.port, len(body)) + body).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0])
        answer = await reader.readexactly(length)
        self.failed += not head.startswith(b"HTTP/1.1 200") or answer.count(b'"error":null') != workers


if __name__ == "__main__":
    print(json.dumps(asyncio.run(HeartbeatLoad(**json.load(sys.stdin)).run())))
