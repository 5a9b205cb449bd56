"""What became of the container in which a node runs inside of a dev environment, as the API server tells."""

from collections.abc import Iterator
from typing import Any

import pytest

from fermi import messages
from fermi.engines.kubernetes.client import KubernetesClient
from fermi.engines.kubernetes.inside import NodeInPod, PodEnvironments, identify_container
from tests.fakes.kubernetes import FakeCluster, conditions, resources
from tests.polling import until

NODE = NodeInPod(0, "dev", "fermi", "dev", "dev", 0, 1)


@pytest.fixture
def environments(kubernetes: FakeCluster) -> Iterator[PodEnvironments]:
    kubernetes.add_node("node-a")
    kubernetes.add_dev_pod("dev", "node-a", memory="2Gi")
    client = KubernetesClient({"kubeconfig": str(kubernetes.kubeconfig), "namespace": "fermi"})
    yield PodEnvironments(client)
    client.close()


@pytest.fixture
def begun(kubernetes: FakeCluster, environments: PodEnvironments) -> dict[str, str]:
    def running() -> dict[str, str] | None:
        (pod,) = kubernetes.pods("dev")
        return identify_container(pod, "dev") if pod["status"].get("phase") == "Running" else None

    return until(running, what="it runs")


def read_fate(environments: PodEnvironments, begun: dict[str, str]) -> tuple[str, dict[str, Any]]:
    fate = until(lambda: environments.find_end(NODE, begun), what="it is known")
    for lang in messages.LANGUAGES:
        assert messages.render_text(fate["code"], lang, node="dev", nodeRank=0, **fate["params"])
    return fate["code"], fate["params"]


def ends_while_it_goes(kubernetes: FakeCluster) -> None:
    """The container has ended and the pod is still there, as it is for about a second (Kubernetes 1.36)."""
    (pod,) = kubernetes.pods("dev")
    kubernetes.api.change(resources.PODS, pod, lambda obj: obj["metadata"].update(finalizers=["test/held"]))
    kubernetes.api.delete(resources.PODS, "fermi", "dev", {})


def test_a_running_container_has_no_end(environments: PodEnvironments, begun: dict[str, str]) -> None:
    assert environments.find_end(NODE, begun) is None


def test_a_deleted_pod_is_no_container_restart(
    kubernetes: FakeCluster, environments: PodEnvironments, begun: dict[str, str]
) -> None:
    ends_while_it_goes(kubernetes)
    assert read_fate(environments, begun)[0] == "POD_DELETED"


@pytest.mark.parametrize(("reason", "code"), [
    ("EvictionByEvictionAPI", "EVICTED"), ("PreemptionByScheduler", "POD_PREEMPTED"),
    ("DeletionByTaintManager", "NODE_LOST"),
])  # fmt: skip
def test_the_reason_of_a_pods_deletion_is_given(
    kubernetes: FakeCluster, environments: PodEnvironments, begun: dict[str, str], reason: str, code: str
) -> None:
    """The condition comes before the deletion (kubernetes/kubernetes, pkg/registry/core/pod/storage/eviction.go)."""
    kubernetes.api.change(
        resources.PODS, kubernetes.pods("dev")[0],
        lambda obj: conditions.set_condition(obj, "DisruptionTarget", True, reason, "Eviction API: evicting"),
    )  # fmt: skip
    ends_while_it_goes(kubernetes)
    found, params = read_fate(environments, begun)
    assert (found, params["evidence"]) == (code, f"{reason}: Eviction API: evicting")


def test_an_oom_killed_container_names_its_limit(
    kubernetes: FakeCluster, environments: PodEnvironments, begun: dict[str, str]
) -> None:
    kubernetes.kill_container(kubernetes.pods("dev")[0], "OOMKilled")
    assert read_fate(environments, begun) == (
        "OUT_OF_MEMORY", {"pod": "dev", "evidence": "OOMKilled, exit code 137", "limit": "2Gi"},
    )  # fmt: skip


def test_a_killed_container_was_restarted(
    kubernetes: FakeCluster, environments: PodEnvironments, begun: dict[str, str]
) -> None:
    kubernetes.kill_container(kubernetes.pods("dev")[0])
    code, params = read_fate(environments, begun)
    assert (code, params["evidence"]) == ("CONTAINER_RESTARTED", "Error, exit code 137")
