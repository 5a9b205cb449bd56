"""The Kubernetes engine: rendering, creating on a fake cluster, being idle, and noticing a change."""

import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from typing import Any

from bench import live_platform, preview
from bench.cluster import BenchCluster
from bench.table import Figure, FigureTarget
from bench.timing import measure_in_turns, measure_seconds
from fermi.engines.kubernetes.engine import KubernetesBackend
from fermi.jobs.spec import Handle, JobSpec, Rendered
from fermi.planning import plugins
from tests.e2e.kubernetes_platform import SMALL, Lab
from tests.fakes.kubernetes import FakeCluster
from tests.polling import until

OBJECTS = 200
TASKS, PODS = 1000, 100  # a machine takes 110 pods
IDLE_SECONDS = 5.0
CHANGES = 20
ROUNDS = 3


def measure() -> Iterator[Figure]:
    yield from _measure_rendering()
    with tempfile.TemporaryDirectory() as folder:
        yield from _measure_creation(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        yield from _measure_idle(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        yield from _measure_status(Path(folder))


def _make_job(nodes: int, task_id: str = "task-bench", machine: int = 0) -> JobSpec:
    spec = replace(preview.make_job(nodes * preview.GPUS), task_id=task_id, attempt=1)
    placed = (replace(node, image="training:1", engine={"node": f"machine-{machine}"}) for node in spec.nodes)
    return replace(spec, nodes=tuple(placed))


def _render_objects(backend: KubernetesBackend, spec: JobSpec) -> Rendered:
    return backend.render(spec, plugins.get_framework(spec.framework).plan(spec))


def render_on_cluster(backend: KubernetesBackend, nodes: int, task_id: str) -> Rendered:
    """Return the rendered job with one node on each machine of a Cluster."""
    spec = _make_job(nodes, task_id)
    placed = (replace(node, engine={"node": f"machine-{number}"}) for number, node in enumerate(spec.nodes))
    return _render_objects(backend, replace(spec, nodes=tuple(placed)))


def _measure_rendering() -> Iterator[Figure]:
    backend = KubernetesBackend({"data_dir": "/data"})
    for nodes in (8, 512, 4096):
        spec = _make_job(nodes)
        plan = plugins.get_framework(spec.framework).plan(spec)
        took = measure_in_turns(3, render=partial(measure_seconds, partial(backend.render, spec, plan)))
        target = FigureTarget(100) if nodes == 512 else None
        yield Figure(f"rendering {nodes:,} nodes of {preview.GPUS} GPUs", took["render"] * 1e3, "ms", target=target)


def make_connection(folder: Path, cluster: BenchCluster) -> dict[str, Any]:
    return {"data_dir": str(folder / "data"), "kubeconfig": str(cluster.kubeconfig), "namespace": "fermi"}


def _measure_creation(folder: Path) -> Iterator[Figure]:
    """Measure the creation of objects. Controllers pause, since the figure is how fast requests are sent; raw requests
    create the same objects."""
    with BenchCluster(folder) as cluster:
        cluster.order("pause", True)
        backend = KubernetesBackend(make_connection(folder, cluster))
        backend.orphans(())
        numbers = iter(range(1000))

        def rendered() -> Rendered:
            return _render_objects(backend, _make_job(OBJECTS, f"task-{next(numbers):04}"))

        def ours() -> float:
            what = rendered()
            return measure_seconds(lambda: backend.submit(what))

        def raw() -> float:
            objects = [artifact.content for artifact in rendered().artifacts]
            create = partial(_create_object, backend)
            return measure_seconds(lambda: backend.client.together(create, objects))

        took = measure_in_turns(3, ours=ours, raw=raw)
        count = OBJECTS + 2
        yield Figure(
            f"creating {count} objects", count / took["ours"], "per s", count / took["raw"], "raw, in parallel",
            FigureTarget(0.8, "at least", "ratio"),
        )  # fmt: skip
        backend.close()


def _create_object(backend: KubernetesBackend, obj: dict[str, Any]) -> None:
    backend.client.create(obj["kind"], obj)


def _measure_idle(folder: Path) -> Iterator[Figure]:
    machines = TASKS // PODS + 1
    with BenchCluster(folder, machines) as cluster:
        backend = KubernetesBackend(make_connection(folder, cluster))
        specs = [_make_job(1, f"task-{number:05}", number % machines) for number in range(TASKS)]
        handles = [Handle(spec.name, spec.task_id, 1, spec.world_size) for spec in specs]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda spec: backend.submit(_render_objects(backend, spec)), specs))
        until(lambda: cluster.order("running") == TASKS, seconds=600, what="all tasks running")
        news: SimpleQueue[tuple[str, float]] = SimpleQueue()
        stop = threading.Event()
        watcher = threading.Thread(
            target=backend.watch, args=(stop, lambda name: news.put((name, time.monotonic()))), daemon=True
        )
        watcher.start()
        until(lambda: wait_until_settled(cluster), seconds=300, what="quiet")
        before, began = cluster.order("calls"), time.monotonic()
        looks = []
        while time.monotonic() - began < IDLE_SECONDS:
            looks.append(measure_seconds(lambda: backend.observe(handles)))
            time.sleep(0.5)
        asked = (cluster.order("calls") - before) / (time.monotonic() - began) * 60
        yield Figure(f"requests with {TASKS:,} tasks idle", asked, "per min", target=FigureTarget(0))
        yield Figure(f"observing {TASKS:,} tasks", median(looks) * 1e3, "ms")
        took = [_measure_notice(cluster, news, handles[number].name) for number in range(CHANGES)]
        yield Figure("pod's phase → the watcher's word", median(took) * 1e3, "ms", target=FigureTarget(500))
        stop.set()
        watcher.join()
        backend.close()


def wait_until_settled(cluster: BenchCluster) -> bool:
    before = cluster.order("calls")
    time.sleep(2)
    return bool(cluster.order("calls") == before)


def _measure_notice(cluster: BenchCluster, news: "SimpleQueue[tuple[str, float]]", name: str) -> float:
    while not news.empty():
        news.get()
    changed = cluster.order("evict", f"{name}-*")
    while True:
        told, at = news.get(timeout=60)
        if told == name:
            return max(0.0, at - changed)


def _measure_status(folder: Path) -> Iterator[Figure]:
    """Measure through the whole platform the delay from the moment when all pods are Running on the cluster to the
    moment when the task's state of that name is recorded."""
    running = live_platform.get_shared_platform()
    with closing(FakeCluster(folder / "cluster").start()) as cluster:
        lab = Lab(running, cluster)
        delays = []
        for _ in range(ROUNDS):
            request = lab.request(hyperparameters={**SMALL, "totalSteps": 100_000})
            request["distributedConfig"]["nodeIds"] = list(lab.environments.values())[:2]
            task_id = lab.send("POST", "/training-tasks", **request)["taskId"]
            began = until(partial(_wait_until_running, lab, task_id), seconds=120, what="its pods run") or 0.0
            running.until_state(task_id, "running")
            events = running.items(task_id, "events", pageSize=200)
            running.api.post(f"/training-tasks/{task_id}/stop").raise_for_status()
            running.until_final(task_id)
            at = next(event["at"] for event in events if event["code"] == "STATE_RUNNING")
            delays.append(datetime.fromisoformat(at).timestamp() - began)
    yield Figure("pods' phase → the task's status, median", median(delays) * 1e3, "ms", target=FigureTarget(500))
    yield Figure("the same, worst", max(delays) * 1e3, "ms", target=FigureTarget(500))


def _wait_until_running(lab: Lab, task_id: str) -> float | None:
    """Return when all pods run, in unix seconds, a few milliseconds late at most."""
    phases = [pod["status"].get("phase") for pod in lab.pods(task_id)]
    return time.time() if phases == ["Running"] * 2 else None
