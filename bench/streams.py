"""A thousand open event streams of one web process: what they take while nothing happens, and how soon all of them hear
of a change, on a thousand tasks and on one.

Nothing trains: tasks are moved as the reconciler moves them, in a process of its own, and another one holds the
readers. A move's moment is taken just before its transaction commits, so times are a little too long.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.procfs import cpu_seconds, memory
from bench.readers import Readers
from bench.table import Figure, Target
from bench.temp_platform import ROOT, environment, inside, scratch
from bench.web import serving

STREAMS = 1000
IDLE_SECONDS = 11.0  # a look at the database for each


def measure() -> Iterator[Figure]:
    with scratch() as data:
        inside(data, "tasks", str(STREAMS))
        tasks = [f"task-bench-{number:05}" for number in range(STREAMS)]
        with serving(data) as web:
            web.client().get("/api/v1/training-tasks").raise_for_status()
            before = memory(web.pids).resident
            with Readers(web, [_path(task) for task in tasks]) as readers:
                began, spent = time.monotonic(), cpu_seconds(web.pids)
                time.sleep(IDLE_SECONDS)
                idle = 100 * (cpu_seconds(web.pids) - spent) / (time.monotonic() - began)
                yield Figure("idle streams, processor of the web process", idle, "%", target=Target(10))
                each = 1024 * (memory(web.pids).resident - before) / STREAMS
                yield Figure("memory of a stream", each, "KiB", target=Target(100))
                delays = _moved(data, readers, "stopping", tasks)
                moved = f"all of {STREAMS:,} tasks moved: recorded → in its stream"
                yield Figure(f"{moved}, median", median(delays), "ms")
                yield Figure(f"{moved}, worst", max(delays), "ms", target=Target(1000))
            with Readers(web, [_path(tasks[0])] * STREAMS) as readers:
                delays = _moved(data, readers, "stopped", tasks[:1])
                yield Figure(f"a task with {STREAMS:,} streams moved: median", median(delays), "ms")
                yield Figure(f"a task with {STREAMS:,} streams moved: worst", max(delays), "ms", target=Target(1000))


def _path(task: str) -> str:
    return f"/api/v1/training-tasks/{task}/stream"


def _moved(data: Path, readers: Readers, state: str, tasks: list[str]) -> list[float]:
    """Milliseconds from the record to each reader."""
    readers.expect(f'"status":"{state}"')
    answer = subprocess.run(
        [sys.executable, "-m", "bench.state_changes", state, *tasks], env=environment(data), cwd=ROOT, check=True,
        stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    recorded = [json.loads(answer)[task] for task in tasks]
    arrived = readers.heard()
    if missing := arrived.count(None):
        raise RuntimeError(f"{missing} of {len(arrived)} streams did not hear of {state}")
    return [1e3 * (at - recorded[number % len(recorded)]) for number, at in enumerate(arrived) if at is not None]
