"""Writes what agents report of the use of hosts, GPUs and ranks into series.

A worker reports its own GPU and rank. One worker of a host reports the host, which counts for every environment with
workers there.
"""

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Any

from apps.telemetry import subjects
from apps.telemetry.writer import TelemetryWriter
from apps.workers.heartbeat.schema import HeartbeatEntry
from apps.workers.models import Worker
from fermi.runner.run_names import parse_run_name
from fermi.telemetry.metrics import GPU, METRICS, RANK

LOOKUP_SECONDS = 60.0
"""Interval of reading which environment a worker belongs to; sooner for a new worker."""
MIN_LOOKUP_SECONDS = 5.0
MAX_PENDING_BEATS = 20_000
"""Heartbeats that wait while the database is unavailable."""


class TelemetryCollector:
    """Collects reported use: `hear` only queues, and may be called in an event loop; `flush` uses the database."""

    def __init__(self, writer: TelemetryWriter | None = None) -> None:
        self._writer = writer or TelemetryWriter()
        self._heard: deque[tuple[HeartbeatEntry, str]] = deque(maxlen=MAX_PENDING_BEATS)
        self._places: dict[str, tuple[str, str, int]] = {}  # by worker: node, environment, place in there
        self._on_node: dict[str, set[str]] = {}
        self._find_at = self._found_at = 0.0

    def hear(self, beats: Iterable[tuple[HeartbeatEntry, Mapping[str, Any]]]) -> None:
        """Queue heartbeats with their answers: only a worker that was told to run a task reports for that task."""
        for beat, answer in beats:
            if beat.used and not answer["error"]:
                self._heard.append((beat, (answer["order"] or {}).get("name", "")))

    def flush(self, *, all_of_it: bool = False) -> int:
        heard = [self._heard.popleft() for _ in range(len(self._heard))]
        self._find([beat for beat, _ in heard])
        for beat, order in heard:
            self._put(beat, order)
        return self._writer.flush(all_of_it=all_of_it)

    def _find(self, entries: list[HeartbeatEntry]) -> None:
        moment = time.monotonic()
        unknown = any(beat.worker not in self._places for beat in entries)
        if not entries or moment < (self._found_at + MIN_LOOKUP_SECONDS if unknown else self._find_at):
            return
        self._found_at, self._find_at = moment, moment + LOOKUP_SECONDS
        counts: defaultdict[str, int] = defaultdict(int)
        on_node: defaultdict[str, set[str]] = defaultdict(set)
        self._places = {}
        rows = Worker.objects.exclude(environment=None).order_by("number")
        for worker, node, environment in rows.values_list("pk", "node", "environment"):
            self._places[worker] = node, environment, counts[environment]
            counts[environment] += 1
            on_node[node].add(environment)
        self._on_node = on_node

    def _put(self, beat: HeartbeatEntry, order: str) -> None:
        assert beat.used is not None
        ranks, gpus, host = dict[str, float](), dict[str, float](), dict[str, float]()
        own_rank = str((beat.process or {}).get("rank"))
        for key, value in beat.used.values.items():
            name, _, index = key.partition(":")
            of = METRICS[name].subject
            if of == RANK:
                ranks.update({key: value} if index == own_rank else {})
            elif of == GPU:
                gpus[name] = value
            else:
                host[key] = value
        at, emulated = beat.used.at, beat.used.emulated
        own = {f"{name}:0": value for name, value in gpus.items()}
        self._writer.put(subjects.make_worker_subject(beat.worker), at, {**own, **ranks}, emulated=emulated)
        if order and ranks and beat.process and beat.process["name"] == order:
            self._writer.put(subjects.make_task_subject(parse_run_name(order)[0]), at, ranks, emulated=emulated)
        if beat.worker in self._places:
            node, environment, place = self._places[beat.worker]
            told = {f"{name}:{place}": value for name, value in gpus.items()}
            self._writer.put(subjects.make_environment_subject(environment), at, told, emulated=emulated)
            for one in self._on_node.get(node, ()) if host else ():
                self._writer.put(subjects.make_environment_subject(one), at, host)
