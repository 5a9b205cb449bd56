"""The backend on a fake cluster with three machines, `a`, `b` and `c`, of eight GPUs each."""

import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fermi.engines.kubernetes.engine import KubernetesBackend
from fermi.jobs.spec import Entrypoint, Handle, JobSpec, Node, Observation, Rendered
from fermi.planning import plugins
from tests.fakes.kubernetes import FakeCluster
from tests.fakes.kubernetes.fixtures import kubernetes
from tests.platform_process import free_port
from tests.polling import until

__all__ = ["kubernetes"]

POD = "task-x-1-node-*"


class Lab:
    """`backend()` makes another process's: memory, connections and threads of its own."""

    def __init__(self, cluster: FakeCluster, scratch: Path) -> None:
        self.cluster, self.scratch = cluster, scratch
        self.data_dir = scratch / "data"
        self._made: list[KubernetesBackend] = []
        self._stops: list[tuple[threading.Event, threading.Thread]] = []
        self.changes: list[str] = []

    def backend(self, **connection) -> KubernetesBackend:
        made = KubernetesBackend(
            {
                "data_dir": str(self.data_dir), "python": sys.executable, "namespace": self.cluster.namespace,
                "kubeconfig": str(self.cluster.kubeconfig), **connection,
            }
        )  # fmt: skip
        self._made.append(made)
        return made

    def watched(self, backend: KubernetesBackend) -> threading.Event:
        """Runs what the platform's watcher process runs, until the event is set."""
        stop = threading.Event()
        thread = threading.Thread(target=backend.watch, args=(stop, self.changes.append))
        thread.start()
        self._stops.append((stop, thread))
        return stop

    def close(self) -> None:
        for stop, thread in self._stops:
            stop.set()
            thread.join()
        for backend in self._made:
            backend.close()


@pytest.fixture
def lab(kubernetes: FakeCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """With what a module names in FEATURES installed; where Kueue is among it, there is the queue `gpus`."""
    features = getattr(request.module, "FEATURES", ())
    kubernetes.install(*features)
    if "kueue" in features:
        kubernetes.add_queue("gpus")
    for name in "abc":
        kubernetes.add_node(f"machine-{name}", gpus=8)
    lab = Lab(kubernetes, tmp_path)
    yield lab
    lab.close()


@pytest.fixture
def backend(lab: Lab) -> KubernetesBackend:
    return lab.backend()


def job(*gpus: int, script: str = "pass", emulated: bool = True, engine: dict | None = None, **changes) -> JobSpec:
    """Ranks run `python -c script` on a node of so many GPUs per number, on machines a, b, … The fake's pods share
    this machine's ports, also with those of other test processes."""
    nodes = tuple(
        Node(
            f"env-{letter}", f"dev-{letter}", gpu_type="A100", gpu_count=count, emulated=emulated, image="training:1",
            cpu_cores=8, memory_gb=64, engine={"node": f"machine-{letter}", **(engine or {})},
        )
        for letter, count in zip("abc", gpus or (1,), strict=False)
    )  # fmt: skip
    entrypoint = Entrypoint("-c", (script,))
    return JobSpec(
        "task-x", "ddp", nodes, "env-a", entrypoint=entrypoint, **{"attempt": 1, "master_port": free_port(), **changes}
    )


def rendered(backend: KubernetesBackend, spec: JobSpec) -> Rendered:
    return backend.render(spec, plugins.get_framework(spec.framework).plan(spec))


def handle(spec: JobSpec) -> Handle:
    return Handle(spec.name, spec.task_id, spec.attempt, spec.world_size)


def submit(backend: KubernetesBackend, spec: JobSpec) -> Handle:
    backend.submit(rendered(backend, spec))
    return handle(spec)


def observe_one(backend: KubernetesBackend, one: Handle) -> Observation:
    return backend.observe([one])[one.name]


def until_seen(backend: KubernetesBackend, one: Handle, wanted, what: str = "") -> Observation:
    """An observation that `wanted` holds of; fails with the last one."""
    last: list[Observation] = []

    def found() -> Observation | None:
        last[:] = [observe_one(backend, one)]
        return last[0] if wanted(last[0]) else None

    try:
        return until(found, what=what or one.name)
    except AssertionError as error:
        raise AssertionError(f"{error}; last seen: {last}") from None


def next_attempt(spec: JobSpec) -> JobSpec:
    return replace(spec, attempt=spec.attempt + 1)
