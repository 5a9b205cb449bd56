"""How objects go: finalizers, owners, propagation, namespaces."""

import json

import pytest
from kubernetes.client.exceptions import ApiException

from tests.fakes.kubernetes import Sleeps
from tests.fakes.objects import config_map, job, pod_spec
from tests.polling import until

NS = "fermi"


def owned(name: str, owner, *, blocks: bool = True) -> dict:
    ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner.metadata.name, "uid": owner.metadata.uid}
    return config_map(name) | {"metadata": {"name": name, "ownerReferences": [ref | {"blockOwnerDeletion": blocks}]}}


def mine(kubernetes) -> list[str]:
    return [name for name in kubernetes.names("configmaps") if name != "kube-root-ca.crt"]


def test_an_immutable_object_keeps_its_data_and_can_be_deleted(kubernetes, clients):
    """kubernetes/kubernetes, pkg/apis/core/validation/validation.go: ValidateConfigMapUpdate."""
    made = clients.core.create_namespaced_config_map(NS, config_map("a") | {"immutable": True, "data": {"key": "1"}})
    for change in ({"data": {"key": "2"}}, {"immutable": False}, {"immutable": None}, {"binaryData": {"key2": "MQ=="}}):
        with pytest.raises(ApiException) as refused:
            clients.core.patch_namespaced_config_map("a", NS, change)
        assert refused.value.status == 422
        assert "field is immutable when `immutable` is set" in refused.value.body
    clients.core.patch_namespaced_config_map("a", NS, {"metadata": {"labels": {"other": "label"}}})
    assert clients.core.read_namespaced_config_map("a", NS).data == made.data
    clients.core.delete_namespaced_config_map("a", NS)
    assert "a" not in kubernetes.names("configmaps")


def test_a_finalizer_keeps_an_object_until_it_is_removed(clients):
    clients.core.create_namespaced_config_map(NS, config_map("a"))
    clients.core.patch_namespaced_config_map("a", NS, {"metadata": {"finalizers": ["example.com/wait"]}})
    clients.core.delete_namespaced_config_map("a", NS)
    kept = clients.core.read_namespaced_config_map("a", NS)
    assert kept.metadata.deletion_timestamp is not None
    clients.core.patch_namespaced_config_map("a", NS, {"metadata": {"finalizers": None}})
    with pytest.raises(ApiException):
        clients.core.read_namespaced_config_map("a", NS)


def test_a_deletion_may_require_a_uid(clients):
    clients.core.create_namespaced_config_map(NS, config_map("a"))
    with pytest.raises(ApiException) as caught:
        clients.core.delete_namespaced_config_map("a", NS, body={"preconditions": {"uid": "another"}})
    assert "Precondition failed: UID in precondition: another" in json.loads(caught.value.body)["message"]


def test_background_deletion_deletes_the_owner_first(kubernetes, clients):
    root = clients.core.create_namespaced_config_map(NS, config_map("root"))
    clients.core.create_namespaced_config_map(NS, owned("leaf", root))
    clients.core.delete_namespaced_config_map("root", NS, propagation_policy="Background")
    assert "root" not in mine(kubernetes)
    until(lambda: not mine(kubernetes))


def test_foreground_deletion_deletes_the_owner_last(kubernetes, clients):
    root = clients.core.create_namespaced_config_map(NS, config_map("root"))
    clients.core.create_namespaced_config_map(NS, owned("leaf", root))
    clients.core.patch_namespaced_config_map("leaf", NS, {"metadata": {"finalizers": ["example.com/wait"]}})
    clients.core.create_namespaced_config_map(NS, owned("free", root, blocks=False))
    clients.core.delete_namespaced_config_map("root", NS, propagation_policy="Foreground")
    until(lambda: mine(kubernetes) == ["leaf", "root"])
    assert clients.core.read_namespaced_config_map("root", NS).metadata.finalizers == ["foregroundDeletion"]
    clients.core.patch_namespaced_config_map("leaf", NS, {"metadata": {"finalizers": None}})
    until(lambda: not mine(kubernetes))


def test_orphans_stay_without_their_owner(kubernetes, clients):
    root = clients.core.create_namespaced_config_map(NS, config_map("root"))
    clients.core.create_namespaced_config_map(NS, owned("leaf", root))
    clients.core.delete_namespaced_config_map("root", NS, propagation_policy="Orphan")
    until(lambda: mine(kubernetes) == ["leaf"])
    assert not clients.core.read_namespaced_config_map("leaf", NS).metadata.owner_references


def test_an_object_of_a_missing_owner_is_deleted(kubernetes, clients):
    root = clients.core.create_namespaced_config_map(NS, config_map("root"))
    clients.core.delete_namespaced_config_map("root", NS)
    clients.core.create_namespaced_config_map(NS, config_map("root"))  # of that name, but another
    clients.core.create_namespaced_config_map(NS, owned("leaf", root))
    until(lambda: mine(kubernetes) == ["root"])


def test_deleting_a_job_without_propagation_keeps_its_pods(kubernetes, clients):
    kubernetes.add_node("a")
    kubernetes.script("*", Sleeps())
    clients.batch.create_namespaced_job(NS, job("t"))
    until(lambda: kubernetes.pods("t-*"))
    clients.batch.delete_namespaced_job("t", NS)
    until(lambda: not kubernetes.names("jobs"))
    (pod,) = kubernetes.pods("t-*")
    until(lambda: "finalizers" not in kubernetes.pods("t-*")[0]["metadata"])
    clients.core.delete_namespaced_pod(pod["metadata"]["name"], NS)
    until(lambda: not kubernetes.pods())


def test_foreground_deletion_of_a_job_waits_for_its_pods(kubernetes, clients):
    kubernetes.add_node("a")
    kubernetes.script("*", Sleeps(deaf=True))
    clients.batch.create_namespaced_job(NS, job("t", pod={"terminationGracePeriodSeconds": 600}))
    until(lambda: [p for p in kubernetes.pods() if p["status"]["phase"] == "Running"])
    clients.batch.delete_namespaced_job("t", NS, propagation_policy="Foreground")
    (pod,) = until(lambda: [p for p in kubernetes.pods() if "deletionTimestamp" in p["metadata"]])
    assert kubernetes.names("jobs") == ["t"]
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 600
    clients.core.delete_namespaced_pod(pod["metadata"]["name"], NS, grace_period_seconds=1)
    until(lambda: not kubernetes.pods() and not kubernetes.names("jobs"))


def test_a_namespace_is_deleted_with_its_objects(kubernetes, clients):
    clients.core.create_namespace({"metadata": {"name": "other"}})
    until(lambda: kubernetes.names("serviceaccounts", "other") == ["default"])
    kubernetes.add_node("a")
    kubernetes.script("*", Sleeps())
    clients.core.create_namespaced_pod("other", {"metadata": {"name": "p"}, "spec": pod_spec()})
    until(lambda: kubernetes.pods("p", "other")[0]["status"]["phase"] == "Running")
    clients.core.delete_namespace("other")
    until(lambda: "other" not in kubernetes.names("namespaces", ""))
    assert not [obj for _, obj in kubernetes.store.everything() if obj["metadata"].get("namespace") == "other"]
