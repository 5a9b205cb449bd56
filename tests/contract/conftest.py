"""A backend joins the contract suite with one fixture here: something that makes jobs its engine can run."""

import itertools
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fermi.engines.agent import environments, set_store
from fermi.engines.base import Backend
from fermi.engines.environments import EnvironmentSpec
from fermi.engines.local import environment_runs
from fermi.jobs.spec import NO_SECRETS, Entrypoint, Handle, JobSpec, Node, Observation, Phase, Plan, RunLocation
from fermi.planning import plugins
from fermi.runner.record_frames import strip_frames
from tests import envd_client, inside_engines, slurm
from tests.fakes.kubernetes import FakeCluster
from tests.fakes.workers import MemoryStore, agent, serving
from tests.platform_process import free_port
from tests.polling import until

SCRIPT = Path(__file__).with_name("script.py")
WORKERS = 4
_numbers = itertools.count(1)


class Engine:
    """A backend and what a test needs to drive it. `job(mode, gpus)`: ranks run `script.py <mode>` on nodes of so
    many. `shares_ports`: its jobs listen on this machine's ports."""

    shares_ports = True

    def __init__(self, backend: Backend, scratch: Path) -> None:
        self.backend = backend
        self.scratch = scratch
        self._handles: list[Handle] = []

    def job(self, mode: str, gpus: tuple[int, ...] = (2,), **changes) -> JobSpec:
        nodes = tuple(
            Node(id=f"env-{i}", name=f"node-{i}", gpu_type="A100", gpu_count=n, emulated=True)
            for i, n in enumerate(gpus)
        )
        entrypoint = Entrypoint(str(SCRIPT), (mode, str(self.scratch)))
        values = {"attempt": 1, "env": {}, "grace_seconds": 20.0, "master_port": free_port(), **changes}
        return JobSpec(f"task-{next(_numbers)}", "ddp", nodes, "env-0", entrypoint=entrypoint, **values)

    def plan(self, job: JobSpec) -> Plan:
        return plugins.get_framework(job.framework).plan(job)

    def handle(self, job: JobSpec) -> Handle:
        handle = Handle(job.name, job.task_id, job.attempt, job.world_size)
        self._handles.append(handle)
        return handle

    def submit(self, job: JobSpec, secrets: Mapping[str, str] = NO_SECRETS) -> Handle:
        handle = self.handle(job)
        self.backend.submit(self.backend.render(job, self.plan(job)), secrets)
        return handle

    def observe(self, handle: Handle) -> Observation:
        return self.backend.observe([handle])[handle.name]

    def until(self, handle: Handle, *phases: Phase) -> Observation:
        return until(lambda: (seen := self.observe(handle)).phase in phases and seen, what=f"{handle.name} in {phases}")

    def until_gone(self, handle: Handle) -> Observation:
        seen = until(lambda: (seen := self.observe(handle)).left is False and seen, what=f"{handle.name} gone")
        self._handles = [other for other in self._handles if other != handle]
        return seen

    def log(self, handle: Handle, rank: int) -> str:
        """Without what a node runner says of itself, and without records."""
        text = strip_frames(self.backend.logs(handle, rank, 0).data).decode()
        return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("fermi: "))

    def close(self) -> None:
        for handle in self._handles:
            self.backend.cancel(handle, 0.0)
            self.until_gone(handle)


ENGINES = (
    "forked", "executed", "local-inside", "kubernetes", "inside", "agent", "agent-inside", "slurm", "slurm-inside",
    *sorted(plugins.BACKENDS.keys() - {"local", "kubernetes", "agent", "slurm"}),
)  # fmt: skip
"""Ways to run on the engines that there are. One that is new is connected with a data directory alone."""


@pytest.fixture(params=ENGINES)
def engine(request, tmp_path) -> Iterator[Engine]:
    """`executed`: an interpreter setting in the job's environment keeps ranks from being forked."""
    if request.param.startswith("slurm"):
        kind = InAllocations if request.param == "slurm-inside" else OnSlurm
        engine = kind(request.getfixturevalue("real_slurm"), tmp_path)
        yield engine
        engine.close()
        return
    places = {
        "local-inside": in_own_environments,
        "kubernetes": on_kubernetes,
        "inside": in_dev_pods,
        "agent": on_workers,
        "agent-inside": in_kept_containers,
    }
    default = partial(connected, request.param) if request.param in plugins.BACKENDS else on_this_machine
    with places.get(request.param, default)(tmp_path) as engine:
        if request.param == "executed":
            make = engine.job
            engine.job = lambda mode, gpus=(2,), **changes: make(
                mode, gpus, **{"env": {"PYTHONHASHSEED": "0"}, **changes}
            )
        yield engine
        engine.close()


@contextmanager
def connected(name: str, scratch: Path) -> Iterator[Engine]:
    yield Engine(plugins.get_backend(name, {"data_dir": str(scratch / "data")}), scratch)


@contextmanager
def on_this_machine(scratch: Path) -> Iterator[Engine]:
    connection = {"data_dir": str(scratch / "data"), "warm": False, "python": sys.executable}
    engine = Engine(plugins.get_backend("local", connection), scratch)
    engine.plan = lambda job: _light(Engine.plan(engine, job))
    yield engine


class InOwnEnvironments(Engine):
    """Each node runs inside of an environment of this machine, with the packages that were installed there."""

    def job(self, mode: str, gpus: tuple[int, ...] = (2,), **changes) -> JobSpec:
        job = super().job(mode, gpus, **{"project": "nlp", **changes})
        for node in job.nodes:
            disk = environment_runs.EnvironmentDisk.from_environment(self.scratch / "data", node.id)
            if not disk.project:
                disk.make("nlp")
                disk.home.mkdir()
                make = [sys.executable, "-m", "fermi.envd.interpreter", sys.executable, str(disk.own)]
                subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
                inside_engines.install_files(str(disk.own / "bin/python"), inside_engines.metadata("toy", "1.0", "toy"))
        return replace(job, nodes=tuple(replace(node, way=RunLocation(True, "WAY_INSIDE_RUNS")) for node in job.nodes))

    def plan(self, job: JobSpec) -> Plan:
        return _light(super().plan(job))


@contextmanager
def in_own_environments(scratch: Path) -> Iterator[InOwnEnvironments]:
    connection = {"data_dir": str(scratch / "data"), "warm": False, "python": sys.executable}
    yield InOwnEnvironments(plugins.get_backend("local", connection), scratch)


class OnKubernetes(Engine):
    shares_ports = False

    def job(self, mode: str, gpus: tuple[int, ...] = (2,), **changes) -> JobSpec:
        job = super().job(mode, gpus, **changes)
        nodes = (replace(node, image="training:1", engine={"node": f"machine-{node.name}"}) for node in job.nodes)
        return replace(job, nodes=tuple(nodes))


@contextmanager
def on_kubernetes(scratch: Path) -> Iterator[OnKubernetes]:
    """With the thread beside it that the platform's watcher process has."""
    cluster = FakeCluster(scratch / "kubernetes").start()
    for number in range(3):
        cluster.add_node(f"machine-node-{number}")
    cluster.add_claim("fermi-data", scratch / "data")
    data = {"mountPath": "/fermi-data", "volume": {"persistentVolumeClaim": {"claimName": "fermi-data"}}}
    backend = plugins.get_backend(
        "kubernetes",
        {
            "data_dir": str(scratch / "data"), "python": sys.executable, "kubeconfig": str(cluster.kubeconfig),
            "namespace": cluster.namespace, "data": data,
        },
    )  # fmt: skip
    stop = threading.Event()
    watcher = threading.Thread(target=backend.watch, args=(stop, lambda name: None))
    watcher.start()
    try:
        engine = OnKubernetes(backend, scratch)
        engine.cluster = cluster
        yield engine
    finally:
        stop.set()
        watcher.join()
        backend.close()
        cluster.close()
    assert not cluster.errors, "\n".join(cluster.errors)


class InDevPods(OnKubernetes):
    """Each node runs inside of a dev pod of its own, which stands before the job comes and does not mount the data
    volume."""

    def __init__(self, backend: Backend, scratch: Path, cluster: FakeCluster) -> None:
        super().__init__(backend, scratch)
        self.cluster = cluster

    def job(self, mode: str, gpus: tuple[int, ...] = (2,), **changes) -> JobSpec:
        job = super().job(mode, gpus, **changes)
        return replace(job, nodes=tuple(self.enter(node) for node in job.nodes))

    def enter(self, node: Node) -> Node:
        spec = {"nodeName": f"machine-{node.name}", "containers": [
            {"name": "main", "image": "training:1", "command": ["sleep", "infinity"]}]}  # fmt: skip
        pod = f"dev-{next(_numbers)}"
        self.cluster.add_pod(pod, spec)
        until(lambda: self._runs(pod), what=f"{pod} runs")
        engine = {**node.engine, "pod": pod, "container": "main", "inside": {"python": sys.executable}}
        return replace(node, engine=engine, way=RunLocation(True, "WAY_INSIDE_RUNS"))

    def _runs(self, name: str) -> bool:
        return any(pod["status"].get("phase") == "Running" for pod in self.cluster.pods(name))


@contextmanager
def in_dev_pods(scratch: Path) -> Iterator[InDevPods]:
    with on_kubernetes(scratch) as engine:
        yield InDevPods(engine.backend, scratch, engine.cluster)


class OnWorkers(Engine):
    shares_ports = False

    def __init__(self, backend: Backend, scratch: Path, server: MemoryStore) -> None:
        super().__init__(backend, scratch)
        self.server = server
        self._free = iter(range(WORKERS))

    def submit(self, job: JobSpec, secrets: Mapping[str, str] = NO_SECRETS) -> Handle:
        self.server.secrets = dict(secrets)
        return super().submit(job, secrets)

    def free(self) -> int:
        """The number of a worker that no job has: the platform's leases see to that."""
        return next(self._free)

    def job(self, mode: str, gpus: tuple[int, ...] = (2,), **changes) -> JobSpec:
        job = super().job(mode, gpus, **changes)
        nodes = (
            replace(node, ip="127.0.0.1", engine={"workers": [f"{node.name}-{self.free()}" for _ in range(n)]})
            for node, n in zip(job.nodes, gpus, strict=True)
        )
        return replace(job, nodes=tuple(nodes))

    def plan(self, job: JobSpec) -> Plan:
        return _light(super().plan(job))


@contextmanager
def on_workers(scratch: Path) -> Iterator[OnWorkers]:
    """Two hosts, each with an agent that drives a few workers."""
    with serving(scratch / "data" / "logs") as platform, ExitStack() as running:
        for node in ("node-0", "node-1"):
            running.enter_context(agent(platform, scratch / node, node=node, gpus=tuple(range(WORKERS))))
        set_store(platform.store)
        yield OnWorkers(plugins.get_backend("agent", {"data_dir": str(scratch / "data")}), scratch, platform.store)


class InKeptContainers(Engine):
    """Each node runs inside of an environment that a host keeps and that stands before the job comes. Keepers of real
    processes stand for containers (with these: tests/e2e/test_workers.py); nothing of theirs is confined, so that a
    test finds what its ranks wrote."""

    shares_ports = False

    def __init__(self, backend: Backend, scratch: Path, hosts: envd_client.Hosts) -> None:
        super().__init__(backend, scratch)
        self.hosts = hosts

    def job(self, mode: str, gpus: tuple[int, ...] = (2,), **changes) -> JobSpec:
        job = super().job(mode, gpus, **changes)
        nodes = tuple(self.enter(node) for node in job.nodes)
        return replace(job, nodes=nodes, master=nodes[0].id)

    def enter(self, node: Node) -> Node:
        key = f"env-{next(_numbers)}"
        envd_client.Kept(self.hosts.hosting, EnvironmentSpec(key, node.name, "nlp", 1, kind="custom")).start()
        self.hosts.running[key] = f"{key}-1"
        return replace(node, id=key, ip="127.0.0.1", image="training:1", way=RunLocation(True, "WAY_INSIDE_RUNS"))


@contextmanager
def in_kept_containers(scratch: Path) -> Iterator[InKeptContainers]:
    found = plugins.get_environment_backend("local", {"data_dir": str(scratch / "host"), "isolation": "off"})
    assert found
    hosts, before = envd_client.Hosts(found), environments.hosts
    set_store(MemoryStore())
    environments.set_hosts(hosts)
    backend = plugins.get_backend("agent", {"data_dir": str(scratch / "data")})
    stop = threading.Event()
    watcher = threading.Thread(target=backend.watch, args=(stop, lambda name: None))
    watcher.start()
    try:
        yield InKeptContainers(backend, scratch, hosts)
    finally:
        stop.set()
        watcher.join()
        environments.hosts = before
        for run in environment_runs.list_living_runs(scratch / "host"):
            until(lambda run=run: (run.request_end(0.0), not run.read_state().left and not run.strays())[1])


class OnSlurm(Engine):
    shares_ports = False

    def __init__(self, lab: slurm.Slurm, scratch: Path, **connection) -> None:
        values = {
            "data_dir": str(scratch / "data"),
            "python": sys.executable,
            "reads": [str(Path(__file__).parent)],
            "writes": [str(scratch)],
            **(connection or {**lab.connection, **lab.commands}),
        }
        super().__init__(plugins.get_backend("slurm", values), scratch)

    def job(self, mode: str, gpus: tuple[int, ...] = (2,), **changes) -> JobSpec:
        job = super().job(mode, gpus, **{"master_port": free_port(), **changes})
        return self.on(job, *slurm.NODES[: len(job.nodes)])

    def on(self, job: JobSpec, *machines: str, **facts) -> JobSpec:
        """With the job's nodes on these machines; an empty name leaves the choice to Slurm."""
        nodes = []
        for node, machine in zip(job.nodes, machines, strict=True):
            known = {"cpus": 4, "gres": f"gpu:{node.gpu_count}", **facts}
            nodes.append(replace(node, engine={"node": machine, **known} if machine else known))
        return replace(job, nodes=tuple(nodes))


class InAllocations(OnSlurm):
    """Each node runs inside of an allocation that somebody else has made, which holds all of its machine."""

    def __init__(self, lab: slurm.Slurm, scratch: Path, **connection) -> None:
        super().__init__(lab, scratch, **connection)
        self.lab = lab
        self.allocations: dict[str, int] = {}

    def on(self, job: JobSpec, *machines: str, **facts) -> JobSpec:
        nodes = (
            replace(node, engine=self.allocated(machine), host=machine, way=RunLocation(True, "WAY_INSIDE_RUNS"))
            for node, machine in zip(job.nodes, machines, strict=True)
        )
        return replace(job, nodes=tuple(nodes))

    def allocated(self, machine: str) -> dict[str, Any]:
        if machine not in self.allocations:
            self.allocations[machine] = self.lab.allocate(machine)
        return {"job": self.allocations[machine], "node": machine, "user": "root"}

    def close(self) -> None:
        super().close()
        for number in self.allocations.values():
            self.lab.command("scancel", str(number))


@pytest.fixture(scope="module")
def real_slurm() -> Iterator[slurm.Slurm]:
    with slurm.started() as lab:
        yield lab


def _light(plan: Plan) -> Plan:
    """The contract is about processes; importing the training stack would only make it slow."""
    return replace(plan, preload=())
