"""512 ranks on a Kubernetes cluster with realistic delays: time from the request until all of them run, and from the
stop until nothing of them is left; through the whole platform, and with a raw client that sends and deletes the same
objects. And from a pod's eviction until the pods of the next attempt run: how much of a recovery on Kubernetes is the
platform's, and how much the cluster's controllers'."""

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench import kubernetes, live_platform
from bench.cluster import BenchCluster
from bench.table import Figure, FigureTarget
from fermi.engines.kubernetes.engine import KubernetesBackend
from fermi.engines.kubernetes.names import SELECTOR
from tests.polling import until

MACHINES, GPUS = 64, 8
LATENCY_SECONDS = 0.015
"""Of a request to an API server whose etcd writes to disk."""
RETRY_ROUNDS = 2
"""How often. Once is enough for 512 ranks: the cluster sets the pace, rounds are within a twentieth of each other."""
CREATED = MACHINES + 2  # ConfigMap and Service
DELETED = 2 * MACHINES  # Jobs and pods
SINGLE_TASK = FigureTarget(1)


def measure() -> Iterator[Figure]:
    running = live_platform.get_shared_platform()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(BenchCluster(folder, MACHINES))
        cluster.order("dev_pods", GPUS)
        connection = kubernetes.make_connection(folder, cluster)
        stored = {name: value for name, value in connection.items() if name != "data_dir"}
        body = {"name": "gang", "backend": "kubernetes", "connection": stored}
        made = running.api.post("/clusters", json=body).raise_for_status().json()["data"]["id"]
        environments = (
            until(partial(_list_environments, running, made), seconds=120, what="dev environments are found") or []
        )
        cluster.order("take_time", LATENCY_SECONDS)
        backend = KubernetesBackend(connection)
        _measure_platform(running, cluster, environments[:2])  # from here on everybody is connected
        ours, raw = _measure_platform(running, cluster, environments), _measure_raw(backend, cluster)
        again = median(_measure_restarts(running, cluster, environments[:2]) for _ in range(RETRY_ROUNDS))
        backend.close()
    yield from _make_figures(ours, raw)
    yield Figure("a pod evicted → both pods of the next attempt run", again, "s", target=FigureTarget(2.5))


@dataclass
class RoundResult:
    """Seconds until all run and until nothing is left, and the number of requests."""

    start: float
    stop: float
    started: Mapping[str, int]
    stopped: Mapping[str, int]

    @property
    def in_vain(self) -> int:
        return self.started["in vain"] + self.stopped["in vain"]


def _make_figures(ours: RoundResult, raw: RoundResult) -> Iterator[Figure]:
    ranks = f"{MACHINES * GPUS} ranks on {MACHINES} machines"
    against = FigureTarget(1.2, applies_to="ratio")
    yield Figure(f"{ranks}: asked for → all run", ours.start, "s", raw.start, "raw", against)
    yield Figure("the same: stopped → nothing is left", ours.stop, "s", raw.stop, "raw", against)
    yield Figure("creations per object", ours.started["create"] / CREATED, "", target=SINGLE_TASK)
    yield Figure("deletions per object", ours.stopped["delete"] / DELETED, "", target=SINGLE_TASK)
    yield Figure("of both, in vain", ours.in_vain, "", raw.in_vain, "raw")


def _list_environments(running: live_platform.LivePlatform, cluster: str) -> list[str] | None:
    items = running.get("/dev-environments", cluster=cluster, status="running", pageSize=200)["items"]
    return [item["id"] for item in items] if len(items) == MACHINES else None


def _wait_for(cluster: BenchCluster, order: str, wanted: int) -> float:
    until(lambda: cluster.order(order) == wanted, seconds=120, what=f"{order}: {wanted}")
    return time.monotonic()


def _measure_platform(
    running: live_platform.LivePlatform, cluster: BenchCluster, environments: list[str]
) -> RoundResult:
    calls, began = cluster.order("calls"), time.monotonic()
    task = running.create(environments)
    start = _wait_for(cluster, "running", len(environments)) - began
    running.until_state(task, "running")
    started = Counter(cluster.order("requests", calls))
    calls, began = cluster.order("calls"), time.monotonic()
    running.api.post(f"/training-tasks/{task}/stop").raise_for_status()
    stop = _wait_for(cluster, "left", 0) - began
    stopped = Counter(cluster.order("requests", calls))
    running.until_state(task, "stopped")
    return RoundResult(start, stop, started, stopped)


def _measure_restarts(running: live_platform.LivePlatform, cluster: BenchCluster, environments: list[str]) -> float:
    task = running.create(environments)
    running.until_state(task, "running")
    began = cluster.order("evict", f"{task}-1-*")
    until(
        lambda: cluster.order("running", f"{task}-2-*") == len(environments), seconds=120, what="the next attempt runs"
    )
    took = time.monotonic() - began
    running.api.post(f"/training-tasks/{task}/stop").raise_for_status()
    running.until_final(task)
    return took


def _measure_raw(backend: KubernetesBackend, cluster: BenchCluster) -> RoundResult:
    client, what = backend.client, kubernetes.render_on_cluster(backend, MACHINES, "task-raw")
    root, *children = [artifact.content for artifact in what.artifacts]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": what.name}

    def create(obj: dict[str, Any]) -> None:
        client.create(obj["kind"], {**obj, "metadata": {**obj["metadata"], "ownerReferences": [owner]}})

    def delete(kind: str, name: str) -> None:
        client.delete(kind, name, propagation="Foreground" if kind == "Job" else "Background")

    calls, began = cluster.order("calls"), time.monotonic()
    owner["uid"] = (client.create("ConfigMap", root) or {})["metadata"]["uid"]
    client.together(create, children)
    start = _wait_for(cluster, "running", MACHINES) - began
    started = Counter(cluster.order("requests", calls))
    names = [(kind, one["metadata"]["name"]) for kind in ("Job", "Pod")
             for one in client.get(client.path(kind), labelSelector=SELECTOR)["items"]]  # fmt: skip
    calls, began = cluster.order("calls"), time.monotonic()
    client.together(lambda one: delete(*one), names)
    stop = _wait_for(cluster, "left", 0) - began
    stopped = Counter(cluster.order("requests", calls))
    client.delete("ConfigMap", what.name)
    return RoundResult(start, stop, started, stopped)
