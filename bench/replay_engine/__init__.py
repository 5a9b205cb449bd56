"""A simulated engine: 64 ranks of each attempt, the newest of which changed as often as a mapped file says. So the cost
of querying an engine is left out; `bench.kubernetes` measures that."""

import mmap
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any

from fermi.engines.base import Backend
from fermi.jobs.spec import (
    NO_SECRETS,
    Handle,
    JobSpec,
    LogChunk,
    Observation,
    Phase,
    Plan,
    RankStatus,
    Rendered,
)
from fermi.runner.run_names import build_run_name

RANKS, GPUS = 64, 8
NUMBER = struct.Struct("<I")
STARTED_AT = 1_700_000_000.0


def make_task_id(number: int) -> str:
    return f"task-size-{number:05}"


def parse_task_number(task: str) -> int:
    return int(task.rpartition("-")[2])


class ReplayBackend(Backend):
    def __init__(self, file: Path) -> None:
        with file.open("r+b") as opened:
            self._changes = mmap.mmap(opened.fileno(), 0)
        self._told = SimpleQueue[str]()

    def change(self, numbers: Iterable[int]) -> None:
        """One rank of each of these tasks is in another process; whoever watches in this process is told."""
        for number in numbers:
            NUMBER.pack_into(self._changes, number * NUMBER.size, self.changes(number) + 1)
            self._told.put(build_run_name(make_task_id(number), 1))

    def observe(self, handles: Iterable[Handle]) -> Mapping[str, Observation]:
        return {handle.name: make_observation(self.changes(parse_task_number(handle.task_id))) for handle in handles}

    def changes(self, number: int) -> int:
        """Of this task, so far."""
        return int(NUMBER.unpack_from(self._changes, number * NUMBER.size)[0])

    def watch(self, stop: Event, on_change: Callable[[str], None]) -> None:
        while not stop.is_set():
            try:
                on_change(self._told.get(timeout=0.2))
            except Empty:
                continue

    def render(self, job: JobSpec, plan: Plan) -> Rendered:
        raise NotImplementedError

    def submit(self, rendered: Rendered, secrets: Mapping[str, str] = NO_SECRETS) -> None:
        raise NotImplementedError

    def cancel(self, handle: Handle, grace_seconds: float, still_seconds: float | None = None) -> None:
        raise NotImplementedError

    def logs(self, handle: Handle, rank: int, cursor: int, limit: int = 1 << 20) -> LogChunk:
        return LogChunk(b"", cursor, end=True)

    def orphans(self, live: Collection[str]) -> Sequence[Handle]:
        return ()


@lru_cache(maxsize=1 << 12)
def make_observation(changes: int) -> Observation:
    ranks = [RankStatus(rank, rank // GPUS, "running", pid=1000 + rank, began_at=STARTED_AT) for rank in range(RANKS)]
    if changes:
        rank = changes % RANKS
        ranks[rank] = RankStatus(rank, rank // GPUS, "running", pid=2000 + changes, began_at=STARTED_AT + changes)
    return Observation(Phase.RUNNING, left=True, ranks=tuple(ranks))


def connect(connection: Mapping[str, Any]) -> ReplayBackend:
    return _open_connection(connection["file"])


@cache
def _open_connection(file: str) -> ReplayBackend:
    return ReplayBackend(Path(file))
