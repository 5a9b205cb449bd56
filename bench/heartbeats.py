"""Heartbeats of many workers, each when it is due: `python -m bench.heartbeats`, a JSON order on standard input."""

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from bench.load import CONNECTIONS

BODY = (
    '{"waitSeconds":0,"workers":[{"id":"%s","token":"%s","incarnation":"bench","sequence":%d,"generation":1,'
    '"process":{"name":"task-bench-1","rank":0,"state":"running","pid":4711,"exitCode":null,"endedAt":null,"left":true},'
    '"usage":{"gpuUtilization":97.5,"gpuMemoryUsedMb":40123,"gpuMemoryTotalMb":81920,"cpuPercent":101.5,'
    '"memoryUsedMb":5123},"logs":{"offset":%d}}]}'
)
HEAD = (
    "POST /api/v1/workers/heartbeat HTTP/1.1\r\nHost: localhost:%d\r\n"
    "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


def worker_id(number: int) -> str:
    return f"gn{number // 8}-{number % 8}"


@dataclass
class Load:
    port: int
    workers: int
    interval: float
    seconds: float
    first: int  # the first round's sequence
    took: list[float] = field(default_factory=list)
    failed: int = 0

    def due(self) -> Any:
        """(seconds from the beginning, worker, sequence), in order."""
        for round_ in range(int(self.seconds / self.interval)):
            for number in range(self.workers):
                yield (round_ + number / self.workers) * self.interval, worker_id(number), self.first + round_

    async def run(self) -> dict[str, float]:
        schedule, spent = self.due(), time.process_time()
        self.began = time.perf_counter() + 0.1
        await asyncio.gather(*(self._connection(schedule) for _ in range(4 * CONNECTIONS)))
        wall = time.perf_counter() - self.began
        self.took.sort()

        def within(share: float) -> float:
            return 1e3 * self.took[min(int(len(self.took) * share), len(self.took) - 1)]

        return {
            "answered": len(self.took), "failed": self.failed, "median_ms": within(0.5), "p95_ms": within(0.95),
            "p99_ms": within(0.99), "busy": (time.process_time() - spent) / wall,
            "last": self.first + int(self.seconds / self.interval) - 1,
        }  # fmt: skip

    async def _connection(self, schedule: Any) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for moment, worker, sequence in schedule:
            due = self.began + moment
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            body = BODY % (worker, worker, sequence, sequence)
            writer.write((HEAD % (self.port, len(body)) + body).encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0])
            answer = await reader.readexactly(length)
            self.took.append(time.perf_counter() - due)
            self.failed += not head.startswith(b"HTTP/1.1 200") or b'"error":null' not in answer
        writer.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(Load(**json.load(sys.stdin)).run())))
