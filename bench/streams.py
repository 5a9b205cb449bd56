"""A thousand open event streams of one web process: what they use while nothing happens, and how soon all of them get a
change, on a thousand tasks and on one.

Nothing trains: tasks are moved as the reconciler moves them, in a process of its own, and another one has the readers.
A move's time is taken just before its transaction commits, so delays are slightly too long.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.procfs import read_cpu_seconds, read_memory
from bench.readers import StreamReaders
from bench.table import Figure, FigureTarget
from bench.temp_platform import ROOT, build_environment, make_temp_folder, run_in_django
from bench.web import serve_web

STREAMS = 1000
IDLE_SECONDS = 11.0  # a look at the database for each


def measure() -> Iterator[Figure]:
    with make_temp_folder() as data:
        run_in_django(data, "tasks", str(STREAMS))
        tasks = [f"task-bench-{number:05}" for number in range(STREAMS)]
        with serve_web(data) as web:
            web.client().get("/api/v1/training-tasks").raise_for_status()
            before = read_memory(web.pids).resident
            with StreamReaders(web, [_get_stream_path(task) for task in tasks]) as readers:
                began, spent = time.monotonic(), read_cpu_seconds(web.pids)
                time.sleep(IDLE_SECONDS)
                idle = 100 * (read_cpu_seconds(web.pids) - spent) / (time.monotonic() - began)
                yield Figure("idle streams, processor of the web process", idle, "%", target=FigureTarget(10))
                each = 1024 * (read_memory(web.pids).resident - before) / STREAMS
                yield Figure("memory of a stream", each, "KiB", target=FigureTarget(100))
                delays = _measure_delays(data, readers, "stopping", tasks)
                moved = f"all of {STREAMS:,} tasks moved: recorded → in its stream"
                yield Figure(f"{moved}, median", median(delays), "ms")
                yield Figure(f"{moved}, worst", max(delays), "ms", target=FigureTarget(1000))
            with StreamReaders(web, [_get_stream_path(tasks[0])] * STREAMS) as readers:
                delays = _measure_delays(data, readers, "stopped", tasks[:1])
                yield Figure(f"a task with {STREAMS:,} streams moved: median", median(delays), "ms")
                yield Figure(
                    f"a task with {STREAMS:,} streams moved: worst", max(delays), "ms", target=FigureTarget(1000)
                )


def _get_stream_path(task: str) -> str:
    return f"/api/v1/training-tasks/{task}/stream"


def _measure_delays(data: Path, readers: StreamReaders, state: str, tasks: list[str]) -> list[float]:
    """Return the milliseconds from the record to each reader."""
    readers.expect(f'"status":"{state}"')
    answer = subprocess.run(
        [sys.executable, "-m", "bench.state_changes", state, *tasks], env=build_environment(data), cwd=ROOT, check=True,
        stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    recorded = [json.loads(answer)[task] for task in tasks]
    arrived = readers.heard()
    if missing := arrived.count(None):
        raise RuntimeError(f"{missing} of {len(arrived)} streams did not hear of {state}")
    return [1e3 * (at - recorded[number % len(recorded)]) for number, at in enumerate(arrived) if at is not None]
