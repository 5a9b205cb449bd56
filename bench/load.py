"""A load generator in a process of its own: `python -m bench.load`, with a JSON order on standard input.

Each connection sends the same bytes again as soon as the answer has arrived. It parses no more of an answer than its
status and length, so that on a second core it is never the bottleneck; its share of a core is part of its report.
"""

import json
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass

CONNECTIONS = 8


@dataclass(frozen=True, slots=True)
class LoadGenerator:
    per_second: float
    median_ms: float
    worst_ms: float
    failed: int  # answers that were not a success
    busy: float  # share of one core that the generator itself used


def run_load(port: int, request: bytes, seconds: float) -> LoadGenerator:
    """Run the load generator and return its report. Raise where an answer was not a success."""
    order = json.dumps({"port": port, "request": request.decode(), "seconds": seconds})
    command = [sys.executable, "-m", "bench.load"]
    answer = subprocess.run(command, input=order, check=True, stdout=subprocess.PIPE, text=True).stdout
    load = LoadGenerator(**json.loads(answer))
    if load.failed:
        raise RuntimeError(f"{load.failed} requests failed: {request[:80]!r}")
    return load


def generate_load(port: int, request: bytes, seconds: float) -> LoadGenerator:
    took: list[float] = []
    failed: list[int] = []

    def one(connection: socket.socket) -> None:
        while (began := time.perf_counter()) < end:
            connection.sendall(request)
            if not 200 <= read_answer(connection) < 300:
                failed.append(1)
            took.append(time.perf_counter() - began)

    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    began, spent = time.perf_counter(), time.process_time()
    end = began + seconds
    threads = [threading.Thread(target=one, args=(connection,)) for connection in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall, spent = time.perf_counter() - began, time.process_time() - spent
    took.sort()
    return LoadGenerator(len(took) / wall, took[len(took) // 2] * 1e3, took[-1] * 1e3, len(failed), spent / wall)


def read_answer(connection: socket.socket) -> int:
    """Read one answer to its end and return the status."""
    data = connection.recv(65536)
    while (head := data.find(b"\r\n\r\n")) < 0:
        data += connection.recv(65536)
    lower = data[:head].lower()
    length = int(lower.partition(b"content-length:")[2].partition(b"\r")[0])
    left = head + 4 + length - len(data)
    while left > 0:
        left -= len(connection.recv(65536))
    return int(data[9:12])


if __name__ == "__main__":
    order = json.load(sys.stdin)
    print(json.dumps(asdict(generate_load(order["port"], order["request"].encode(), order["seconds"]))))
