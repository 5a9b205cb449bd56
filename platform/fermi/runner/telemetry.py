"""Measures the node for its runner, in a thread: a GPU's driver may answer slowly, and must not block the runner.
Standard library only, Python 3.9 or later.

Samples wait until the runner takes them: only the runner writes its files.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

from fermi.telemetry.xids import XidReader

MAX_WAITING_SAMPLES = 8
CLOSE_TIMEOUT_SECONDS = 0.2
"""How long the runner waits at the end for the sample that is not complete."""


def read_visible_gpus(spec: Mapping[str, Any]) -> str | None:
    """Return CUDA_VISIBLE_DEVICES of a node's ranks, or None."""
    found: str | None = spec["env"].get("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
    return found


class TelemetryThread:
    """The thread. `spec`: the node's. `ranks`: the entries of its status. `xids`: of its GPUs."""

    def __init__(self, spec: Mapping[str, Any], ranks: list[dict[str, Any]], folder: str, xids: XidReader) -> None:
        self._visible, self._xids = read_visible_gpus(spec), xids
        self._folders, self._ranks = [spec["cwd"], folder], ranks
        self._samples: deque[dict[str, Any]] = deque(maxlen=MAX_WAITING_SAMPLES)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="measuring", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def pop_samples(self) -> list[dict[str, Any]]:
        """Return the samples since the last call."""
        return [self._samples.popleft() for _ in range(len(self._samples))]

    def rest(self) -> list[dict[str, Any]]:
        """End the thread and return the remaining samples."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_TIMEOUT_SECONDS)
        return self.pop_samples()

    def _run(self) -> None:
        """Measure until the end. Imports what it uses while the ranks start. It is no part of the training: after an
        error nothing more is measured."""
        with contextlib.suppress(Exception):
            from fermi.telemetry.aggregation import SampleAggregator
            from fermi.telemetry.metrics import PERIOD_SECONDS
            from fermi.telemetry.sampler import TelemetrySampler

            sampler, folding = TelemetrySampler(self._folders, self._visible, xids=self._xids), SampleAggregator()
            sampler.sample(*self._running())  # what counters say now: rates begin with the next one
            while not self._ending.wait(PERIOD_SECONDS):
                if told := folding.add(sampler.sample(*self._running())):
                    self._samples.append(told)
            if told := folding.rest():
                self._samples.append(told)
            sampler.close()

    def _running(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the first process of each rank, and its place on the node."""
        running = [entry for entry in self._ranks if entry["state"] == "running" and entry["pid"]]
        leaders = {entry["rank"]: entry["pid"] for entry in running}
        return leaders, {entry["rank"]: entry["local_rank"] for entry in running}
