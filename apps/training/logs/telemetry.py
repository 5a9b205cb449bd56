"""Collects what running attempts use from their engines into series: their nodes' values become their environments',
their ranks' values the task's."""

import threading
import time
from typing import NamedTuple

from apps.clusters.cluster_threads import ClusterThreads
from apps.clusters.models import Cluster
from apps.telemetry import subjects
from apps.telemetry.writer import TelemetryWriter
from apps.training.core.engine_access import build_handle, get_backend
from apps.training.logs import poll_interval
from apps.training.models import Task
from fermi.jobs.spec import Sample
from fermi.telemetry.aggregation import REPORT_SECONDS, SampleAggregator
from fermi.telemetry.metrics import GPU, METRICS, PERIOD_SECONDS, RANK
from fermi.telemetry.sampler import TelemetrySampler

MAX_INTERVAL_SECONDS = 60.0  # seconds between two readings at most
MAX_TIME_SHARE = 0.01
"""Largest share of its time that the watcher spends on one attempt's telemetry. Runners keep what they measure for
minutes."""


class _Target(NamedTuple):
    environment: str | None
    ranks: range


class TelemetryCollector:
    """Collector of the telemetry of one attempt."""

    def __init__(self, task: Task) -> None:
        self._task, self._handle = task, build_handle(task, task.attempt)
        self._due = 0.0
        self._places: list[_Target] = []
        first = 0
        for environment, processes in task.nodes.order_by("node_rank").values_list("environment", "processes"):
            self._places.append(_Target(environment, range(first, first + processes)))
            first += processes
        self._after = [0.0] * len(self._places)  # by node: the newest moment that was read

    def read(self, moment: float, writer: TelemetryWriter) -> None:
        """Read new samples if the next ones can have arrived. `moment`: monotonic seconds; may be called often."""
        if moment < self._due or not self._places:
            return
        self._due = moment + REPORT_SECONDS
        began = time.monotonic()
        self.read_remaining(writer)
        self._due = moment + max(
            REPORT_SECONDS, poll_interval.compute_pause(time.monotonic() - began, MAX_TIME_SHARE, MAX_INTERVAL_SECONDS)
        )

    def read_remaining(self, writer: TelemetryWriter) -> None:
        """Read what has not been read yet; also called at the attempt's end, when the last samples arrive: a short
        attempt has no others."""
        backend = get_backend(self._task.cluster)
        for sample in backend.telemetry(self._handle, min(self._after, default=0.0)):
            if sample.node_rank < len(self._places) and sample.at > self._after[sample.node_rank]:
                self._after[sample.node_rank] = sample.at
                self._put(sample, writer, here=backend.is_local)

    def _put(self, sample: Sample, writer: TelemetryWriter, *, here: bool) -> None:
        """Store a sample. If all nodes are this machine, it is measured once, and only GPUs belong to one node."""
        place = self._places[sample.node_rank]
        own, ranks = dict[str, float](), dict[str, float]()
        for key, value in sample.values.items():
            name, _, index = key.partition(":")
            of = METRICS[name].subject
            if of == RANK:
                if index.isdecimal() and int(index) in place.ranks:
                    ranks[key] = value
            elif of == GPU or not here:
                own[key] = value
        writer.put(subjects.make_task_subject(self._task.pk), sample.at, ranks, emulated=sample.emulated)
        if place.environment:
            writer.put(subjects.make_environment_subject(place.environment), sample.at, own, emulated=sample.emulated)


def create_host_sampler(writer: TelemetryWriter, folders: list[str]) -> ClusterThreads:
    """Return the threads that measure the platform's own machine, for clusters that run on it."""

    def follow(cluster: Cluster, ending: threading.Event) -> None:
        sampler, folding = TelemetrySampler(folders), SampleAggregator()
        try:
            while not ending.wait(PERIOD_SECONDS):
                if told := folding.add(sampler.sample()):
                    writer.put(subjects.make_host_subject(cluster.pk), told["at"], told["values"])
        finally:
            sampler.close()

    return ClusterThreads("telemetry", lambda cluster: get_backend(cluster).is_local, follow)
