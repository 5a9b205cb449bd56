"""An attempt counts as gone when the cluster says so, and not before."""

from fermi.engines.kubernetes import deletion
from fermi.jobs.spec import Phase
from tests.fakes.kubernetes import Sleeps
from tests.polling import until
from tests.unit.engines.kubernetes.conftest import POD, job, observe_one, submit, until_seen


def running(lab, backend, deaf: bool = False):
    lab.cluster.script(POD, Sleeps(deaf=deaf))
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    return one


def test_a_terminating_pod_keeps_its_environment_leased(lab, backend):
    one = running(lab, backend, deaf=True)
    backend.cancel(one, 600.0)
    until(lambda: lab.cluster.pods(POD)[0]["metadata"].get("deletionTimestamp"))
    assert observe_one(backend, one).left is True
    backend.cancel(one, 0.0)
    until_seen(backend, one, lambda seen: seen.left is False)


def lost(lab, backend, monkeypatch, **lose):
    """A pod on a machine that has fallen silent, its time over."""
    monkeypatch.setattr(deletion, "OVERDUE_SECONDS", 0.2)
    monkeypatch.setattr(deletion, "FENCE_RETRY_SECONDS", 0.1)
    one = running(lab, backend)
    lab.cluster.lose_node("machine-a", **lose)
    return one


def cancel(backend, one):
    backend.cancel(one, 0.0)
    return observe_one(backend, one)


def test_a_pod_on_a_dead_node_is_force_deleted(lab, backend, monkeypatch):
    one = lost(lab, backend, monkeypatch)
    until(lambda: cancel(backend, one).left is False, what="gone")
    assert not lab.cluster.pods(POD)


def test_a_pod_on_a_node_with_heartbeats_is_not_force_deleted(lab, backend, monkeypatch):
    one = lost(lab, backend, monkeypatch, processes_die=False, lease_age=0.0)
    looked = len(lab.cluster.calls("get", "leases"))
    until(lambda: cancel(backend, one) and len(lab.cluster.calls("get", "leases")) > looked + 2, what="looked at")
    assert observe_one(backend, one).left is True
    assert lab.cluster.pods(POD)
    lab.cluster.restore_node("machine-a")


def test_without_permission_to_read_nodes_nothing_is_force_deleted(lab, backend, monkeypatch):
    lab.cluster.access.deny("get", "nodes")
    one = lost(lab, backend, monkeypatch)
    asked = len(lab.cluster.calls("get", "nodes"))
    until(lambda: cancel(backend, one) and len(lab.cluster.calls("get", "nodes")) > asked + 2, what="asked")
    assert observe_one(backend, one).left is True
    lab.cluster.restore_node("machine-a")


def test_with_permission_a_dead_node_is_tainted_out_of_service(lab, monkeypatch):
    backend = lab.backend(out_of_service_taint=True)
    one = lost(lab, backend, monkeypatch)

    def tainted():
        cancel(backend, one)
        node = next(node for node in lab.cluster.all("nodes", "") if node["metadata"]["name"] == "machine-a")
        return any(taint["key"] == deletion.OUT_OF_SERVICE_TAINT for taint in node["spec"].get("taints") or ())

    until(tainted, what="tainted")


def test_repeated_cancelling_makes_no_requests(lab, backend):
    one = running(lab, backend, deaf=True)
    backend.cancel(one, 600.0)
    until(lambda: lab.cluster.pods(POD)[0]["metadata"].get("deletionTimestamp"))
    until_seen(backend, one, lambda _: backend._watch.memory.gang(one.name).cancelled)
    until(
        lambda: all(p["metadata"].get("deletionTimestamp") for p in backend._watch.memory.gang(one.name).pods.values())
    )
    until(
        lambda: all(j["metadata"].get("deletionTimestamp") for j in backend._watch.memory.gang(one.name).jobs.values())
    )
    before = len(lab.cluster.calls("write"))
    for _ in range(20):
        backend.cancel(one, 600.0)
    assert len(lab.cluster.calls("write")) == before
    until(lambda: cancel(backend, one).left is False, what="gone")
