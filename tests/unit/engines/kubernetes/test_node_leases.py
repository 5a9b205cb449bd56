"""A machine that says nothing is named before Kubernetes gives it up."""

import pytest

from fermi.engines.kubernetes import engine
from fermi.engines.kubernetes.client import KubernetesApiError, KubernetesClient
from fermi.engines.kubernetes.node_leases import NodeLeases
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Phase
from tests.fakes.kubernetes import FakeCluster, Sleeps
from tests.polling import until
from tests.unit.engines.kubernetes.conftest import POD, Lab, job, observe_one, submit, until_seen


class Clock:
    """Machines that renew their leases when they are told to, and looks at them."""

    def __init__(self, cluster: FakeCluster, *machines: str) -> None:
        self.cluster, self.at = cluster, 1000.0
        for name in machines:
            cluster.add_node(name)
        cluster.kubelets.dead.update(machines)  # none renews its lease by itself
        connection = {"kubeconfig": str(cluster.kubeconfig), "namespace": cluster.namespace}
        self.leases = NodeLeases(KubernetesClient(connection))

    def after(self, seconds: float, *renewing: str) -> set[str]:
        """What is silent then, looked at every five seconds, while these renew theirs."""
        end = self.at + seconds
        while self.at < end:
            self.at += 5.0
            for name in renewing:
                self.cluster.kubelets.renew(name, self.at)
            self.leases.read_leases(self.at)
        return set(self.leases._silent)


@pytest.fixture
def clock(kubernetes: FakeCluster) -> Clock:
    made = Clock(kubernetes, "a", "b", "c")
    assert made.after(5, "a", "b", "c") == set()
    return made


def test_a_machine_that_does_not_renew_its_lease_is_silent_until_it_returns(clock: Clock) -> None:
    assert clock.after(30, "a", "b") == set()
    assert clock.after(5, "a", "b") == {"c"}
    assert clock.after(5, "a", "b", "c") == set()


def test_clocks_of_machines_do_not_matter(clock: Clock) -> None:
    """Leases say when they were renewed by the machine's clock, which may be hours away."""
    clock.at += 5.0
    clock.cluster.kubelets.renew("c", 0.0)
    clock.leases.read_leases(clock.at)
    assert clock.after(30, "a", "b") == set()
    assert clock.after(5, "a", "b") == {"c"}


def test_where_most_machines_are_silent_none_is_blamed(clock: Clock) -> None:
    assert clock.after(60, "a") == set()


def test_unobserved_leases_are_unknown(clock: Clock) -> None:
    """The API server was away, or this process slept: leases could not be renewed, or nobody saw it."""
    clock.at += 60.0
    assert clock.after(5, "a", "b") == set()
    assert clock.after(30, "a", "b") == set()
    assert clock.after(5, "a", "b") == {"c"}


def test_without_permission_no_machine_is_silent(kubernetes: FakeCluster) -> None:
    clock = Clock(kubernetes, "a")
    kubernetes.access.deny("list", "leases.coordination.k8s.io")
    with pytest.raises(BackendError) as refused:
        clock.leases.read_leases(clock.at)
    assert isinstance(refused.value, KubernetesApiError)
    assert refused.value.code == "ENGINE_FORBIDDEN"
    assert clock.leases.silent() == frozenset()
    clock.leases.stop()


def test_a_task_names_its_silent_machine_and_continues(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = lab.backend()
    lab.cluster.script(POD, Sleeps())
    one = submit(backend, job(1, 1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    monkeypatch.setattr(backend._leases, "silent", lambda: frozenset({"machine-b"}))
    seen = observe_one(backend, one)
    assert seen.phase is Phase.RUNNING, "nothing ends because of it"
    assert seen.waiting
    assert (seen.waiting.code, seen.waiting.params["machine"]) == ("NODE_SILENT", "machine-b")
    assert seen.waiting.params["node"] == "dev-b"
    monkeypatch.setattr(engine, "RESCAN_SECONDS", 0.1)
    lab.watched(backend)
    until(lambda: lab.changes.count(one.name) > 3, what="whoever watches tells again and again of it")
    monkeypatch.setattr(backend._leases, "silent", lambda: frozenset({"machine-z"}))
    assert observe_one(backend, one).waiting is None
