"""5,000 workers that send a heartbeat every ten seconds each, as they would: one by one, evenly spread, each with a
process that runs and what it uses. A web process on SQLite answers.

The load comes from a process of its own (`bench.heartbeats`), and an answer's time counts from the moment its heartbeat
was due. What is in the database afterwards has to be what was sent last.
"""

import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from bench.procfs import cpu_seconds, memory
from bench.scratch import ROOT, environment, inside, scratch
from bench.table import Figure, Target
from bench.web import serving
from tests.waiting import until

WORKERS = 5000
INTERVAL = 10.0
SECONDS = 40.0
WARM_UP = 10.0  # seconds of the same before it counts: every worker has been heard once


def measure() -> Iterator[Figure]:
    with scratch() as data:
        inside(data, "workers", str(WORKERS))
        with serving(data) as web:
            _load(data, web.port, WARM_UP, first=1)
            commits = Commits(data / "fermi.sqlite3")
            before = cpu_seconds(web.pids)
            load = _load(data, web.port, SECONDS, first=100)
            spent = (cpu_seconds(web.pids) - before) / SECONDS
            written = commits.per_second()
            missing = _missing(data, load["last"])
            yield Figure("heartbeats", load["answered"] / SECONDS, "/s")
            yield Figure("answer, median", load["median_ms"], "ms")
            yield Figure("answer, 95 of 100 within", load["p95_ms"], "ms", target=Target(100))
            yield Figure("answer, 99 of 100 within", load["p99_ms"], "ms")
            yield Figure("the server's processor", spent, "cores", target=Target(1))
            yield Figure("the server's memory, resident", memory(web.pids).resident, "MiB")
            yield Figure("database: transactions", written, "/s")
            yield Figure("database: rows in them", load["answered"] / SECONDS, "/s")
            yield Figure("newest heartbeats that were not stored", missing, "", target=Target(0))
            yield Figure("the load generator's own share of a core", 100 * load["busy"], "%")


def _load(data: Path, port: int, seconds: float, first: int) -> dict[str, float]:
    order = {"port": port, "workers": WORKERS, "interval": INTERVAL, "seconds": seconds, "first": first}
    answer = subprocess.run(
        [sys.executable, "-m", "bench.heartbeats"], input=json.dumps(order), env=environment(data), cwd=ROOT,
        check=True, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    load: dict[str, float] = json.loads(answer)
    if load["failed"]:
        raise RuntimeError(f"{load['failed']:.0f} heartbeats were not answered as they should")
    return load


def _missing(data: Path, last: float) -> float:
    with closing(sqlite3.connect(data / "fermi.sqlite3")) as database:

        def behind() -> int:
            question = "SELECT count(*) FROM workers_report WHERE sequence <> ?"
            return int(database.execute(question, (int(last),)).fetchone()[0])

        with suppress(AssertionError):
            until(lambda: behind() == 0, seconds=10, what="all is stored")
        return behind()


class Commits:
    """Counts other connections' transactions, as SQLite's `data_version` tells of them."""

    def __init__(self, path: Path) -> None:
        self._ended = threading.Event()
        self._began, self._seen = time.monotonic(), 0
        self._thread = threading.Thread(target=self._watch, args=(path,))
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
