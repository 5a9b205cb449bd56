"""What the Kubernetes scenarios run on: the fake cluster, or the real one that FERMI_TEST_KUBECONFIG names.

A scenario knows this interface alone, so that it cannot rely on what only the fake does. On a real cluster it makes and
removes a namespace of its own and needs an image (FERMI_TEST_IMAGE) with Python 3.9 or later; FERMI_TEST_POD_PATCH
names a JSON file that is merged into every pod spec.
"""

import itertools
import json
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from fermi.engines.kubernetes import module_configmap
from fermi.engines.kubernetes.engine import KubernetesBackend
from fermi.engines.kubernetes.names import CONTAINER, SELECTOR
from fermi.engines.kubernetes.render import apply_merge_patch
from fermi.jobs.spec import Entrypoint, Handle, JobSpec, Node, Observation, Phase
from fermi.planning import plugins
from fermi.runner.record_frames import strip_frames
from tests.fakes.kubernetes import FakeCluster
from tests.platform_process import free_port
from tests.polling import until

T = TypeVar("T")
SCRIPT, SCRIPT_DIR = Path(__file__).with_name("kubernetes_script.py"), "/scenario"
WITH_SCRIPT = {
    "volumes": [{"name": "scenario", "configMap": {"name": "scenario"}}],
    "containers": [{"name": CONTAINER, "volumeMounts": [{"name": "scenario", "mountPath": SCRIPT_DIR}]}],
}
_numbers = itertools.count(1)


class Platform:
    """A backend and the watcher that the platform runs beside it; `close` is the end of its processes, not of what it
    started."""

    def __init__(self, connection: dict[str, Any]) -> None:
        plugins.get_backend("kubernetes", connection)  # that it is found by its name
        self.backend = KubernetesBackend(connection)
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self.backend.watch, args=(self._stop, lambda _: None))
        self._watcher.start()

    def close(self) -> None:
        self._stop.set()
        self._watcher.join()
        self.backend.close()


class Lab:
    """`fake`: the cluster behind it, None for a real one. `machines`: names of nodes that take pods."""

    def __init__(self, kubeconfig: Path, namespace: str, image: str, data_dir: Path, fake: FakeCluster | None) -> None:
        self.kubeconfig, self.namespace, self.image, self.data_dir, self.fake = (
            kubeconfig, namespace, image, data_dir, fake,
        )  # fmt: skip
        self.patience = 60.0 if fake else 600.0
        self.api = config.new_client_from_config(str(kubeconfig))
        self.core, self.batch = client.CoreV1Api(self.api), client.BatchV1Api(self.api)
        self.custom = client.CustomObjectsApi(self.api)
        files = {"metadata": {"name": "scenario"}, "data": {"script.py": SCRIPT.read_text()}}
        self.core.create_namespaced_config_map(namespace, files)
        self.machines = [node.metadata.name for node in self.core.list_node().items if not node.spec.unschedulable]
        self._platforms: list[Platform] = []
        self._handles: list[tuple[Platform, Handle]] = []

    def platform(self, **connection: Any) -> Platform:
        pod = WITH_SCRIPT
        if path := os.environ.get("FERMI_TEST_POD_PATCH") if self.fake is None else None:
            pod = apply_merge_patch(pod, json.loads(Path(path).read_text(encoding="utf-8")))
        described = {
            "kubeconfig": str(self.kubeconfig), "namespace": self.namespace, "data_dir": str(self.data_dir), "pod": pod,
            "requests": {"cpu": "50m", "memory": "64Mi"}, **connection,
        }  # fmt: skip
        self._platforms.append(platform := Platform(described))
        return platform

    def job(self, mode: str, ranks: tuple[int, ...] = (1, 1), **changes: Any) -> JobSpec:
        """Emulated GPUs on as many environments, spread over the machines there are."""
        nodes = tuple(
            Node(
                id=f"env-{i}", name=f"dev-{i}", gpu_type="A100", gpu_count=count, emulated=True, cpu_cores=2,
                memory_gb=2, image=self.image, engine={"node": self.machines[i % len(self.machines)]},
            )
            for i, count in enumerate(ranks)
        )  # fmt: skip
        values = {
            "attempt": 1, "grace_seconds": 5.0, "entrypoint": Entrypoint(f"{SCRIPT_DIR}/script.py", (mode,)),
            "master_port": free_port() if self.fake else 29500, "backend": "gloo", **changes,
        }  # fmt: skip
        return JobSpec(f"scenario-{secrets.token_hex(3)}-{next(_numbers)}", "ddp", nodes, "env-0", **values)

    def submit(self, platform: Platform, job: JobSpec) -> Handle:
        handle = Handle(job.name, job.task_id, job.attempt, job.world_size)
        self._handles.append((platform, handle))
        platform.backend.submit(platform.backend.render(job, plugins.get_framework(job.framework).plan(job)))
        return handle

    def until(self, condition: Callable[[], T], what: str = "") -> T:
        return until(condition, seconds=self.patience, what=what)

    def until_phase(self, platform: Platform, handle: Handle, *phases: Phase) -> Observation:
        """Fails early when the attempt failed instead."""

        def seen() -> Observation | None:
            found = platform.backend.observe([handle])[handle.name]
            if found.phase is Phase.FAILED and Phase.FAILED not in phases:
                raise AssertionError(f"{handle.name} failed: {found.cause}\n{self.logs(platform, handle)}")
            return found if found.phase in phases else None

        return self.until(seen, what=f"{handle.name} in {phases}")  # type: ignore[return-value]

    def until_waiting(self, platform: Platform, handle: Handle, code: str) -> Observation:
        """It has not begun, for this reason."""

        def seen() -> Observation | None:
            found = platform.backend.observe([handle])[handle.name]
            assert found.phase is not Phase.FAILED, found.cause
            return found if found.waiting and found.waiting.code == code else None

        return self.until(seen, what=f"{handle.name} waits: {code}")  # type: ignore[return-value]

    def until_gone(self, platform: Platform, handle: Handle, *, grace: float | None = None) -> Observation:
        """With a `grace` it is cancelled at each look, as the reconciler does."""
        last: list[Observation] = []

        def gone() -> bool:
            if grace is not None:
                platform.backend.cancel(handle, grace)
            last[:] = [platform.backend.observe([handle])[handle.name]]
            return last[0].left is False

        try:
            self.until(gone, what=f"nothing left of {handle.name}")
        except AssertionError as error:
            raise AssertionError(f"{error}: {last}; there are {self.left()}") from error
        return last[0]

    def end_attempt(self, platform: Platform, handle: Handle, grace: float = 0.0) -> None:
        self.until_gone(platform, handle, grace=grace)
        platform.backend.delete_attempt(handle)

    def log(self, platform: Platform, handle: Handle, rank: int) -> str:
        """What the rank itself printed."""
        data, cursor = b"", 0
        while chunk := platform.backend.logs(handle, rank, cursor):
            data, cursor = data + chunk.data, chunk.cursor
            if chunk.end:
                break
        text = strip_frames(data).decode()
        return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("fermi: "))

    def logs(self, platform: Platform, handle: Handle) -> str:
        return "\n".join(self.log(platform, handle, rank) for rank in range(handle.world_size))

    def pods(self, handle: Handle) -> list[Any]:
        selector = f"{SELECTOR},fermi.io/task={handle.task_id}"
        return self.core.list_namespaced_pod(self.namespace, label_selector=selector).items

    def left(self) -> list[str]:
        """Every object of the platform's that is in the namespace, as `kind/name`. What all attempts share stays."""
        found = []
        for kind, lists in (
            ("configmap", self.core.list_namespaced_config_map), ("service", self.core.list_namespaced_service),
            ("pod", self.core.list_namespaced_pod), ("job", self.batch.list_namespaced_job),
        ):  # fmt: skip
            items = lists(self.namespace, label_selector=SELECTOR).items
            made = [item.metadata.name for item in items]
            found += [f"{kind}/{name}" for name in made if not name.startswith(module_configmap.NAME_PREFIX)]
        if self.has("jobset.x-k8s.io"):
            where = ("jobset.x-k8s.io", "v1alpha2", self.namespace, "jobsets")
            found += [
                f"jobset/{one['metadata']['name']}"
                for one in self.custom.list_namespaced_custom_object(*where)["items"]
            ]
        return sorted(found)

    def has(self, group: str) -> bool:
        return any(found.name == group for found in client.ApisApi(self.api).get_api_versions().groups)

    def close(self) -> None:
        """Whatever a scenario left running ends."""
        open_ones = [(platform, handle) for platform, handle in self._handles if platform.backend.client]
        for platform, handle in open_ones:
            with suppress(Exception):
                platform.backend.cancel(handle, 0.0)
        for platform in self._platforms:
            platform.close()
        self.api.close()


@contextmanager
def on_the_fake(scratch: Path) -> Iterator[Lab]:
    """The namespace takes `restricted` pods alone."""
    cluster = FakeCluster(scratch / "kubernetes", features=("jobset", "kueue")).start()
    for name in ("machine-a", "machine-b", "machine-c"):
        cluster.add_node(name)
    lab = Lab(cluster.kubeconfig, cluster.namespace, "training:1", scratch / "data", cluster)
    strict = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    lab.core.patch_namespace(cluster.namespace, strict)
    try:
        yield lab
    finally:
        lab.close()
        cluster.close()
    assert not cluster.errors, "\n".join(cluster.errors)


@contextmanager
def on_a_real_one(scratch: Path) -> Iterator[Lab]:
    kubeconfig = Path(os.environ["FERMI_TEST_KUBECONFIG"])
    core = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))
    namespace = f"fermi-test-{secrets.token_hex(4)}"
    core.create_namespace({"metadata": {"name": namespace}})
    try:
        until(lambda: _account(core, namespace), seconds=120, what="the namespace's service account")
        lab = Lab(kubeconfig, namespace, os.environ["FERMI_TEST_IMAGE"], scratch / "data", None)
        try:
            yield lab
        finally:
            lab.close()
    finally:
        core.delete_namespace(namespace)


def _account(core: client.CoreV1Api, namespace: str) -> bool:
    try:
        core.read_namespaced_service_account("default", namespace)
    except ApiException as error:
        if error.status != 404:
            raise
        return False
    return True


def with_image(job: JobSpec, image: str) -> JobSpec:
    return replace(job, nodes=tuple(replace(node, image=image) for node in job.nodes))


def with_engine(job: JobSpec, **engine: Any) -> JobSpec:
    return replace(job, nodes=tuple(replace(node, engine={**node.engine, **engine}) for node in job.nodes))
