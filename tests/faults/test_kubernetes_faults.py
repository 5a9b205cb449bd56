"""Whatever call of create, restart or delete goes wrong, or is our last: nothing is created twice, nothing is left."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fermi.engines.kubernetes.client import KubernetesClient
from fermi.engines.kubernetes.engine import KubernetesBackend
from fermi.engines.kubernetes.names import MANAGED_BY
from tests.fakes.kubernetes import Exits, FakeCluster, Sleeps, errors
from tests.fakes.kubernetes.faults import Fault
from tests.fakes.kubernetes.fixtures import kubernetes  # noqa: F401
from tests.faults import kubernetes_life
from tests.polling import until
from tests.sampling import some

pytestmark = pytest.mark.faults
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cluster(kubernetes: FakeCluster) -> FakeCluster:  # noqa: F811
    """Two machines. The second node of every first attempt fails; all else runs until it is ended."""
    kubernetes.add_node("machine-0")
    kubernetes.add_node("machine-1")
    kubernetes.script("*", Sleeps())
    kubernetes.script("*-1-node-1-*", Exits(1))
    return kubernetes


def live(cluster: FakeCluster, folder: Path, task_id: str) -> None:
    own = folder / task_id
    backend = KubernetesBackend(kubernetes_life.connection(str(cluster.kubeconfig), cluster.namespace, own))
    try:
        kubernetes_life.live(backend, task_id, own.with_suffix(".state"))
    finally:
        backend.close()


def assert_clean(cluster: FakeCluster, task_id: str, where: str) -> None:
    """Nothing of the platform's is left, and each object of the task's came to be once."""

    def left() -> list[str]:
        ours = [(r.plural, obj) for r, obj in cluster.store.everything() if _is_ours(obj)]
        return [f"{plural}/{obj['metadata']['name']}" for plural, obj in ours]

    until(lambda: not left(), what=f"an empty cluster after {where}")
    made = {
        (kind, name): count for (kind, _, name), count in cluster.store.added.items() if name.startswith(f"{task_id}-")
    }
    expected = {(kind, f"{task_id}-{attempt}") for attempt in (1, 2) for kind in ("configmaps", "services")}
    jobs = {f"{task_id}-{attempt}-node-{node}" for attempt in (1, 2) for node in (0, 1)}
    expected |= {("jobs", name) for name in jobs}
    assert {key: made.get(key) for key in expected} == dict.fromkeys(expected, 1), where
    pods = [name.rpartition("-")[0] for kind, name in made if kind == "pods"]
    assert len(pods) == len(set(pods)), where  # fewer than jobs when an attempt was ended before one had its pod
    assert set(pods) <= jobs, where


def _is_ours(obj: dict) -> bool:
    """But for the modules that all of them share."""
    return (obj["metadata"].get("labels") or {}).get(MANAGED_BY) == "fermi" and not obj.get("immutable")


def writes(cluster: FakeCluster, folder: Path) -> int:
    """How many calls that change something an undisturbed life makes."""
    live(cluster, folder, "plain")
    assert_clean(cluster, "plain", "an undisturbed life")
    return len(cluster.calls("write"))


FAULTS = {
    "refused-500": lambda: Fault("refuse", refused=errors.internal()),
    "refused-429": lambda: Fault("refuse", refused=errors.too_many_requests(1)),
    "refused-503": lambda: Fault("refuse", refused=errors.Refused(503, "ServiceUnavailable", "apiserver not ready")),
    "refused-504": lambda: Fault("refuse", refused=errors.Refused(504, "Timeout", "the server was unable to respond")),
    "reset-before": lambda: Fault("reset"),
    "reset-after": lambda: Fault("reset", after=True),
    "hang-before": lambda: Fault("hang"),
    "hang-after": lambda: Fault("hang", after=True),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_at_any_write_is_recovered(cluster, tmp_path, name, monkeypatch):
    monkeypatch.setitem(KubernetesClient.request.__kwdefaults__, "timeout", 0.5)
    count = writes(cluster, tmp_path)
    assert count >= 15, "a life has that many"
    for nth in some(range(1, count + 1), 3):
        cluster.faults.clear()
        fault = FAULTS[name]()
        fault.verb, fault.nth = "write", nth
        cluster.faults.add(fault)
        task = f"{name}-{nth}"
        live(cluster, tmp_path, task)
        assert_clean(cluster, task, f"{name} at write {nth}")
        assert fault.struck or nth > count - 3, "the write was reached"  # how often it is tried again differs a little


@pytest.mark.parametrize("verb", ["list", "watch", "get"])
def test_temporarily_failing_reads_are_recovered(cluster, tmp_path, verb):
    cluster.faults.add(Fault("refuse", verb, refused=errors.internal(), times=4))
    cluster.faults.add(Fault("reset", verb, nth=6, times=2))
    live(cluster, tmp_path, f"read-{verb}")
    assert_clean(cluster, f"read-{verb}", verb)


def test_an_api_server_that_restarts_and_forgets_is_recovered(cluster, tmp_path):
    """At each step of the task; watches break in the middle of an event, and what they resume from is gone."""
    over = threading.Event()

    def disturb() -> None:
        while not over.wait(0.1):
            cluster.restart_api()

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        for number in range(5):
            live(cluster, tmp_path, f"restart-{number}")
    finally:
        over.set()
        disturber.join()
    for number in range(5):
        assert_clean(cluster, f"restart-{number}", "restarts of the API server")


@pytest.fixture
def lives(cluster: FakeCluster, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
    command = [sys.executable, "-m", "tests.faults.kubernetes_life", cluster.kubeconfig, cluster.namespace, tmp_path]
    process = subprocess.Popen(
        list(map(str, command)), env={**os.environ, "PYTHONPATH": path}, cwd=ROOT, text=True, bufsize=1,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    yield process
    process.stdin.close()
    process.wait(30)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_write_is_recovered(cluster, lives, tmp_path, after):
    """The next process goes on where the last one was killed: right before a call took effect, or right after."""

    def one(task_id: str, nth: int) -> int:
        """Lives until the `nth` write, 0 = to the end; the exit code."""
        lives.stdin.write(f"{task_id}\n")
        pid = int(lives.stdout.readline())
        cluster.faults.clear()
        if nth:
            cluster.faults.kill(pid, "write", nth=nth, after=after)
        lives.stdin.write("go\n")
        return int(lives.stdout.readline())

    nth, code = 1, -9
    while code == -9:
        task = f"{'after' if after else 'before'}-{nth}"
        code = one(task, nth)
        assert code in (-9, 0), f"write {nth}"
        if code == -9:
            assert one(task, 0) == 0, f"the life after the one killed at write {nth}"
        assert_clean(cluster, task, f"a kill at write {nth}")
        nth += 1
    assert nth > 10, "the writes were reached"
