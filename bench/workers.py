"""20,000 workers that report every ten seconds what their ranks do: as the agents of 2,500 hosts send it, eight workers
together and held while there is nothing new, and each worker by itself. One web process on SQLite answers.

The load comes from a process of its own (`bench.heartbeats`), and an answer's time counts from the moment when its
heartbeat was due, or when it had been held long enough. What is stored afterwards has to be what was sent last.
"""

import json
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from statistics import median

from apps.common.bounds import HEARTBEAT_PATH
from bench.load import read_answer
from bench.procfs import read_cpu_seconds, read_memory
from bench.table import Figure, FigureTarget
from bench.temp_platform import ROOT, build_environment, make_temp_folder, run_in_django
from bench.web import BenchWeb, serve_web
from tests.polling import until

WORKERS = 20_000
INTERVAL = 10.0
TOO_MANY_WORKERS = 150_000
WARM_UP = 5.0
"""Seconds in which each worker is heard once before it counts."""


def measure() -> Iterator[Figure]:
    with make_temp_folder() as data:
        run_in_django(data, "workers", str(WORKERS))
        with serve_web(data, FERMI_WORKER_HEARTBEAT=str(INTERVAL)) as web:
            _run_load(data, web, WARM_UP, 1, first=1)
            yield from _measure_load(data, web, "each by itself", 1, first=100)
            yield from _measure_load(data, web, "eight of a host together", 1, first=200, hold=INTERVAL)
            yield from _measure_refusals(web)
            yield Figure("the server's memory, resident", read_memory(web.pids).resident, "MiB")


def _measure_refusals(web: BenchWeb) -> Iterator[Figure]:
    """Measure unauthenticated heartbeats that name far too many workers."""
    bodies = [
        b'{"workers":[%s]}' % b",".join([entry] * TOO_MANY_WORKERS) for entry in (b"{}", b'{"id":"gn0-0","token":"x"}')
    ]
    with socket.create_connection(("127.0.0.1", web.port)) as connection:

        def refused(body: bytes) -> float:
            request = web.request("POST", HEARTBEAT_PATH, body)
            began = time.perf_counter()
            connection.sendall(request)
            if (status := read_answer(connection)) not in (400, 413):
                raise RuntimeError(f"a heartbeat of {TOO_MANY_WORKERS} entries was answered with {status}")
            return time.perf_counter() - began

        for body in bodies * 10:
            refused(body)
        before = read_memory(web.pids).resident
        took = max(median(refused(body) for _ in range(10)) for body in bodies)
        left = max(0.0, read_memory(web.pids).resident - before)
    yield Figure(
        f"a heartbeat of {TOO_MANY_WORKERS:,} entries is refused in", 1e3 * took, "ms", target=FigureTarget(50)
    )
    yield Figure("memory that twenty of them leave behind", left, "MiB", target=FigureTarget(1))


def _measure_load(data: Path, web: BenchWeb, how: str, rounds: int, first: int, hold: float = 0.0) -> Iterator[Figure]:
    commits = CommitCounter(data / "fermi.sqlite3")
    before = read_cpu_seconds(web.pids)
    load = _run_load(data, web, INTERVAL, rounds, first, hold)
    seconds = rounds * INTERVAL
    spent = (read_cpu_seconds(web.pids) - before) / seconds
    written, missing = commits.per_second(), _count_missing(data, load["last"])
    yield Figure(f"heartbeats, {how}", load["answered"] / seconds, "/s")
    yield Figure(f"{how}: the server's processor", spent, "cores", target=FigureTarget(0.7))
    yield Figure(f"{how}: answer, median", load["median_ms"], "ms")
    yield Figure(f"{how}: answer, 95 of 100 within", load["p95_ms"], "ms", target=FigureTarget(100))
    yield Figure(f"{how}: answer, 99 of 100 within", load["p99_ms"], "ms")
    yield Figure(f"{how}: transactions of the database", written, "/s")
    yield Figure(f"{how}: newest heartbeats that were not stored", missing, "", target=FigureTarget(0))
    yield Figure(f"{how}: the load generator's own share of a core", 100 * load["busy"], "%")


def _run_load(
    data: Path, web: BenchWeb, interval: float, rounds: int, first: int, hold: float = 0.0
) -> dict[str, float]:
    order = {
        "port": web.port,
        "workers": WORKERS,
        "interval": interval,
        "seconds": rounds * interval,
        "first": first,
        "hold": hold,
    }
    answer = subprocess.run(
        [sys.executable, "-m", "bench.heartbeats"], input=json.dumps(order), env=build_environment(data), cwd=ROOT,
        check=True, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    load: dict[str, float] = json.loads(answer)
    if load["failed"]:
        raise RuntimeError(f"{load['failed']:.0f} heartbeats were not answered as they should")
    return load


def _count_missing(data: Path, last: float) -> float:
    with closing(sqlite3.connect(data / "fermi.sqlite3")) as database:

        def behind() -> int:
            question = "SELECT count(*) FROM workers_report WHERE sequence <> ?"
            return int(database.execute(question, (int(last),)).fetchone()[0])

        with suppress(AssertionError):
            until(lambda: behind() == 0, seconds=10, what="all is stored")
        return behind()


class CommitCounter:
    """Counts transactions of other connections, by SQLite's `data_version`."""

    def __init__(self, path: Path) -> None:
        self._ended = threading.Event()
        self._began, self._seen = time.monotonic(), 0
        self._thread = threading.Thread(target=self._watch, args=(path,), daemon=True)
        self._thread.start()

    def _watch(self, path: Path) -> None:
        with closing(sqlite3.connect(path)) as database:
            version = None
            while not self._ended.wait(0.01):
                now = database.execute("PRAGMA data_version").fetchone()
                self._seen += version is not None and now != version
                version = now

    def per_second(self) -> float:
        self._ended.set()
        self._thread.join()
        return self._seen / (time.monotonic() - self._began)
