"""Commands in containers, and what becomes of them when their container, pod, node or API server ends."""

import pytest

from tests.fakes.execs import Exec, RefusedError, run
from tests.waiting import until

NS = "fermi"


@pytest.fixture
def dev(kubernetes):
    """A dev pod that runs."""
    kubernetes.add_node("node-a", gpus=8)
    return standing(kubernetes, "dev")


def standing(kubernetes, name: str, **more) -> dict:
    kubernetes.add_dev_pod(name, "node-a", real=True, **more)
    return until(lambda: ready(kubernetes, name), what=f"{name} runs")


def ready(kubernetes, name: str) -> dict | None:
    (pod,) = kubernetes.pods(name)
    statuses = pod["status"].get("containerStatuses") or [{}]
    return pod if statuses[0].get("ready") else None


def container(kubernetes, name: str) -> dict:
    (pod,) = kubernetes.pods(name)
    return pod["status"]["containerStatuses"][0]


@pytest.mark.parametrize(("reason", "code"), [("OOMKilled", 137), ("Error", 1)])
def test_a_container_that_is_killed_is_another_one_afterwards(kubernetes, dev, reason, code):
    """Its id, `restartCount` and `lastState`: kubernetes/kubernetes, pkg/kubelet/kuberuntime/kuberuntime_container.go
    (startContainer, toKubeContainerStatus) and pkg/kubelet/kubelet_pods.go (convertToAPIContainerStatuses)."""
    first = container(kubernetes, "dev")
    assert first["containerID"].startswith("containerd://")
    assert len(first["containerID"]) == len("containerd://") + 64
    for count in (1, 2, 3):
        before = container(kubernetes, "dev")["containerID"]
        kubernetes.kill_container(dev, reason, code)
        until(lambda count=count: container(kubernetes, "dev")["restartCount"] == count and ready(kubernetes, "dev"))
        now = container(kubernetes, "dev")
        ended = now["lastState"]["terminated"]
        assert now["containerID"] != before
        assert (ended["containerID"], ended["reason"], ended["exitCode"]) == (before, reason, code)
        assert ended["startedAt"] <= ended["finishedAt"] <= now["state"]["running"]["startedAt"]
    assert kubernetes.pods("dev")[0]["status"]["phase"] == "Running"


def test_a_stream_ends_with_its_killed_container_as_with_a_killed_command(kubernetes, dev):
    """The kernel kills all of a pid namespace with its first process (pid_namespaces(7)); 137 is 128 + SIGKILL. What is
    said: staging/src/k8s.io/kubelet/pkg/cri/streaming/remotecommand/exec.go (ServeExec)."""
    with Exec(kubernetes, dev, "sh", "-c", "echo on; exec sleep 600") as stream:
        stream.until(b"on")
        kubernetes.kill_container(dev, "OOMKilled")
        stream.rest()
        assert stream.status["status"] == "Failure"
        assert (stream.status["reason"], stream.code) == ("NonZeroExitCode", 137)
        assert stream.closed


def test_a_stream_ends_with_its_pod_when_it_is_evicted_or_deleted(kubernetes, clients, dev):
    """The pod has failed when nothing of it runs any more: pkg/kubelet/status/status_manager.go (mergePodStatus)."""
    with Exec(kubernetes, dev, "sh", "-c", "echo on; exec sleep 600") as stream:
        stream.until(b"on")
        kubernetes.evict(dev, "The node was low on resource: memory.")
        assert stream.rest().code == 137
    until(lambda: kubernetes.pods("dev")[0]["status"]["phase"] == "Failed")
    status = kubernetes.pods("dev")[0]["status"]
    assert (status["reason"], status["message"]) == ("Evicted", "The node was low on resource: memory.")
    assert "terminated" in status["containerStatuses"][0]["state"]
    assert "Evicted" in [event["reason"] for event in kubernetes.all("events")]
    other = standing(kubernetes, "other")
    with Exec(kubernetes, other, "sh", "-c", "echo on; exec sleep 600") as stream:
        stream.until(b"on")
        clients.core.delete_namespaced_pod("other", NS)
        assert stream.rest().code == 137
    until(lambda: not kubernetes.pods("other"))


def test_the_right_to_exec_is_denied_by_namespace_and_verb(kubernetes, dev):
    """A WebSocket is a GET. Until 1.34 it takes the right to `get` pods/exec alone, from 1.35 on `create` as well:
    pkg/registry/core/pod/rest/subresources.go (ExecREST.Connect), pkg/features/kube_features.go
    (AuthorizePodWebsocketUpgradeCreatePermission). Words: staging/src/k8s.io/apiserver/pkg/endpoints/handlers/
    responsewriters/errors.go (forbiddenMessage)."""
    access, server = kubernetes.access, kubernetes.server
    access.deny("*", "pods/exec", "elsewhere")
    access.deny("create", "pods/exec", NS)
    with pytest.raises(RefusedError) as refused:
        run(kubernetes, dev, "true")
    assert (refused.value.code, refused.value.status["reason"]) == (403, "Forbidden")
    server.websockets_create = False
    assert run(kubernetes, dev, "true").code == 0
    access.deny("get", "pods/exec", NS)
    with pytest.raises(RefusedError) as refused:
        run(kubernetes, dev, "true")
    assert refused.value.status["message"] == (
        'pods "dev" is forbidden: User "system:serviceaccount:fermi:fermi" cannot get resource "pods/exec" in API '
        'group "" in the namespace "fermi"'
    )
