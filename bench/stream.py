"""How soon a page sees a change of status: from its record in the database to its arrival in the event stream.

A state's event has the time taken just before its transaction commits, so the figure is slightly too long rather than
too short. All processes are on this machine and share its clock.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from statistics import median
from typing import Any

from bench import live_platform
from bench.table import Figure, FigureTarget
from fermi.client import Fermi
from tests.polling import until

ROUNDS = 4
SCRIPT = "import time\ntime.sleep(600)\n"


class StreamWatcher:
    """Follows a task's stream in a thread. `seen`: (unix seconds of arrival, brief) of every status message."""

    def __init__(self, fermi: Fermi, task_id: str) -> None:
        self.seen: list[tuple[float, dict[str, Any]]] = []
        self._thread = threading.Thread(target=self._follow, args=(fermi, task_id))
        self._thread.start()

    def _follow(self, fermi: Fermi, task_id: str) -> None:
        for event in fermi.tasks.stream(task_id):
            if event.kind == "status":
                self.seen.append((time.time(), event.data))

    def wait(self) -> None:
        self._thread.join(60)

    def first(self, status: str) -> float | None:
        return next((at for at, brief in self.seen if brief["status"] == status), None)


def measure() -> Iterator[Figure]:
    delays: list[float] = []
    asked: list[float] = []
    killed: list[float] = []
    running = live_platform.get_shared_platform()
    with live_platform.make_client(running) as fermi:
        script = running.data / "workspace" / "sleep.py"
        script.parent.mkdir(exist_ok=True)
        script.write_text(SCRIPT)
        for _ in range(ROUNDS):
            task_id, watcher = _run_task(running, fermi)
            stop_at = time.time()
            fermi.tasks.stop(task_id)
            watcher.wait()
            asked.append((watcher.first("stopping") or watcher.first("stopped") or 0) - stop_at)
            delays += _measure_delays(running, task_id, watcher)
        for _ in range(ROUNDS):
            task_id, watcher = _run_task(running, fermi)
            kill_at = time.time()
            os.kill(running.task(task_id)["ranks"][0]["pid"], signal.SIGKILL)
            watcher.wait()
            reasons = [at for at, brief in watcher.seen if at > kill_at and brief["reason"]]
            killed.append(reasons[0] - kill_at)
            delays += _measure_delays(running, task_id, watcher)
    soon = FigureTarget(300)
    yield Figure("status recorded → in the stream, median", median(delays) * 1e3, "ms", target=soon)
    yield Figure("the same, worst", max(delays) * 1e3, "ms", target=soon)
    yield Figure("stop asked for → `stopping` in the stream", median(asked) * 1e3, "ms")
    yield Figure("kill -9 of a rank → its reason in the stream", median(killed) * 1e3, "ms")


def _run_task(running: live_platform.LivePlatform, fermi: Fermi) -> tuple[str, StreamWatcher]:
    task_id, _ = live_platform.create_task(running, 2, entrypoint={"script": "sleep.py", "args": []}, maxRestarts=0)
    watcher = StreamWatcher(fermi, task_id)
    until(lambda: watcher.first("running"), seconds=60, what="the stream says it runs")
    return task_id, watcher


def _measure_delays(running: live_platform.LivePlatform, task_id: str, watcher: StreamWatcher) -> list[float]:
    """Return the delay of each state that the stream showed (one that lasted less than a page needs may be skipped)."""
    found = []
    for event in running.items(task_id, "events", pageSize=100):
        if event["kind"] == "state" and event["code"].startswith("STATE_"):
            arrived = watcher.first(event["code"].removeprefix("STATE_").lower())
            recorded = datetime.fromisoformat(event["at"]).timestamp()
            if arrived is not None:
                found.append(arrived - recorded)
    return found
