"""Dev environments as a Kubernetes cluster shows them, and their watch."""

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fermi.engines.discovery import DiscoveredEnvironment
from fermi.engines.kubernetes import environment_pods, mirror, survey
from fermi.engines.kubernetes.discover import follow
from fermi.jobs.errors import BackendError
from tests.fakes.kubernetes import HOME, Exits, FakeCluster, Sleeps, Waits
from tests.fakes.kubernetes.resources import PODS, named
from tests.fakes.pod_exec import run
from tests.polling import until

DEV = {"fermi.io/dev-environment": "true"}


class Seen:
    """What `follow` told last, in a thread of its own."""

    def __init__(self, connection: dict[str, Any]) -> None:
        self.stop, self.found, self.told, self.error = threading.Event(), {}, 0, None
        self._thread = threading.Thread(target=self._run, args=(connection,))
        self._thread.start()

    def _run(self, connection: dict[str, Any]) -> None:
        try:
            for found in follow(connection, self.stop):
                self.found = {one.key: one for one in found}
                self.told += 1
        except BackendError as error:
            self.error = error

    def until(self, condition: Any, what: str) -> Any:
        def reached() -> Any:
            assert self.error is None, self.error
            return condition(self.found)

        return until(reached, what=what)

    def close(self) -> None:
        self.stop.set()
        self._thread.join()


@pytest.fixture
def seen(kubernetes: FakeCluster) -> Iterator[Seen]:
    watching = Seen({"kubeconfig": str(kubernetes.kubeconfig), "namespace": "fermi"})
    yield watching
    watching.close()


@pytest.fixture
def two_nodes(kubernetes: FakeCluster) -> FakeCluster:
    kubernetes.add_node("node-a", gpus=8, zone="zone-a")
    kubernetes.add_node("node-b", gpus=4, zone="zone-b", gpu_type="Tesla-V100-SXM2-32GB")
    return kubernetes


def running(seen: Seen, key: str) -> DiscoveredEnvironment:
    found: DiscoveredEnvironment = seen.until(
        lambda found: key in found and found[key].running and found[key], f"{key} runs"
    )
    return found


def test_a_pod_is_an_environment_with_what_training_pods_need(two_nodes: FakeCluster, seen: Seen) -> None:
    notes = {"fermi.io/owner": "ada", "fermi.io/python": "/opt/python"}
    labels = {**DEV, "fermi.io/project": "research"}
    two_nodes.add_claim("home", two_nodes.scratch)
    two_nodes.add_dev_pod(
        "notebook", "node-a", gpus=2, image="jupyter/pytorch-notebook", labels=labels, annotations=notes,
        cpu="16", memory="128Gi", volumes={"/home/ada": "home"},
    )  # fmt: skip
    one = running(seen, "fermi/notebook")
    assert (one.name, one.project, one.owner, one.kind) == ("notebook", "research", "ada", "jupyter")
    assert (one.zone, one.gpu_type, one.gpu_count, one.emulated) == ("zone-a", "A100", 2, False)
    assert (one.cpu_cores, one.memory_gb, one.image, one.host) == (16, 128, "jupyter/pytorch-notebook", "node-a")
    assert one.ip
    assert one.started_at
    engine = {name: value for name, value in one.engine.items() if name != "inside"}  # it may be looked into by now
    assert engine == {
        "pod": "notebook",
        "container": "dev",
        "namespace": "fermi",
        "node": "node-a",
        "serviceAccount": "default",
        "volumes": [{"name": "v0", "persistentVolumeClaim": {"claimName": "home"}}],
        "volumeMounts": [{"name": "v0", "mountPath": "/home/ada"}],
        "imagePullPolicy": "Always",
        "resource": "nvidia.com/gpu",
        "python": "/opt/python",
        "gpus": {"there": 8, "held": 2},
    }


@pytest.mark.parametrize(("resources", "size"), [
    ({"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "8", "memory": "16Gi"}}, (8, 16)),
    ({"requests": {"cpu": "6", "memory": "12Gi"}}, (6, 12)),
    ({"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "2"}}, (16, 128)),
    ({"limits": {"memory": "4Gi"}}, (64, 4)),
])  # fmt: skip
def test_an_environment_has_the_limits_of_its_own_container(resources: dict[str, Any], size: Any) -> None:
    """Limits, else requests, else its GPUs' share of the node; sidecars are none of it."""
    allocatable = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"}
    nodes = {"/node-a": {"metadata": {}, "status": {"allocatable": allocatable}}}
    sidecar = {"name": "proxy", "image": "p", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}
    main = {"name": "dev", "image": "training:1", "resources": resources}
    for containers in ([main, sidecar], [sidecar, main]):
        spec = {"nodeName": "node-a", "containers": containers}
        notes = {"kubectl.kubernetes.io/default-container": "dev"}
        meta = {"name": "dev", "namespace": "n", "annotations": notes}
        one = environment_pods.read_environment({"metadata": meta, "spec": spec}, nodes, lambda *_: 0, "p")
        assert (one.cpu_cores, one.memory_gb, one.image) == (*size, "training:1")


def test_a_sidecar_is_not_taken_for_the_environment() -> None:
    sidecar, main = {"name": "proxy", "image": "p"}, {"name": "dev", "image": "i", "resources": {"limits": GPU}}
    meta = {"name": "dev", "namespace": "n"}
    one = environment_pods.read_environment(
        {"metadata": meta, "spec": {"containers": [sidecar, main]}}, {}, lambda *_: 0, "p"
    )
    assert (one.image, one.gpu_count) == ("i", 1)


GPU = {"nvidia.com/gpu": "1"}


def test_a_pods_network_adapter_settings_are_taken_over() -> None:
    limits = {**GPU, "rdma/hca_shared_devices_a": "1", "vpc.amazonaws.com/efa": "4", "example.com/fpga": "1"}
    main = {
        "name": "dev", "image": "i", "imagePullPolicy": "Never", "resources": {"limits": limits},
        "securityContext": {"capabilities": {"add": ["IPC_LOCK", "SYS_ADMIN"]}},
    }  # fmt: skip
    spec = {"containers": [main], "runtimeClassName": "nvidia"}
    found = environment_pods.read_environment(
        {"metadata": {"name": "d", "namespace": "n"}, "spec": spec}, {}, lambda *_: 0, "p"
    ).engine
    assert (found["imagePullPolicy"], found["runtimeClassName"]) == ("Never", "nvidia")
    assert found["capabilities"] == ["IPC_LOCK"], "and nothing that breaks out"
    assert found["devices"] == {"rdma/hca_shared_devices_a": 1, "vpc.amazonaws.com/efa": 4}


def test_pods_without_the_label_are_ignored(two_nodes: FakeCluster, seen: Seen) -> None:
    two_nodes.add_dev_pod("other", "node-a", gpus=1)
    two_nodes.add_dev_pod("mine", "node-b", gpus=1, labels=DEV)
    running(seen, "fermi/mine")
    assert set(seen.found) == {"fermi/mine"}


def test_added_changed_and_deleted_pods_are_seen(two_nodes: FakeCluster, seen: Seen) -> None:
    seen.until(lambda found: seen.told, "the empty cluster is told")
    two_nodes.add_dev_pod("dev", "node-b", gpus=4, labels=DEV)
    assert running(seen, "fermi/dev").gpu_type == "V100"
    two_nodes.evict(two_nodes.pods("dev")[0])
    seen.until(lambda found: not found["fermi/dev"].running, "its end")
    two_nodes.api.delete(PODS, "fermi", "dev", {})
    seen.until(lambda found: not found, "its absence")


def test_a_pod_pulling_its_image_is_neither_running_nor_unhealthy(two_nodes: FakeCluster, seen: Seen) -> None:
    two_nodes.script("slow", Waits("ContainerCreating"))
    two_nodes.add_pod("slow", {"nodeName": "node-a", "containers": [{"name": "dev", "image": "i"}]}, labels=DEV)
    one = seen.until(lambda found: found.get("fermi/slow"), "it is seen")
    assert (one.running, one.healthy) == (False, True)


def test_gpus_of_a_resource_claim_are_counted_and_the_claim_passed_on(two_nodes: FakeCluster, seen: Seen) -> None:
    two_nodes.server.features.add("dra")
    two_nodes.add_dev_pod("dev", "node-a", gpus=4, claim="four-gpus", labels=DEV)
    one = running(seen, "fermi/dev")
    assert (one.gpu_count, one.engine["resourceClaims"]) == (4, ["four-gpus"])


def test_gpus_of_all_dev_environments_of_a_node_are_held(two_nodes: FakeCluster, seen: Seen) -> None:
    """Also those that the platform makes, which are not among what is found."""
    two_nodes.add_dev_pod("dev", "node-a", gpus=2, labels=DEV)
    two_nodes.add_dev_pod("made", "node-a", gpus=4, labels={"fermi.io/hosted": "env-1", "fermi.io/run": "1"})
    two_nodes.add_dev_pod("elsewhere", "node-b", gpus=1, labels={"fermi.io/hosted": "env-2", "fermi.io/run": "1"})
    found = seen.until(
        lambda found: (one := found.get("fermi/dev")) and one.engine.get("gpus", {}).get("held") == 6 and found,
        "the GPUs of both are counted",
    )
    assert (found.keys(), found["fermi/dev"].engine["gpus"]["there"]) == ({"fermi/dev"}, 8)


def test_only_configured_namespaces_are_followed(two_nodes: FakeCluster) -> None:
    for name in ("notebooks", "private", "stranger"):
        two_nodes.add_namespace(name)
        two_nodes.add_dev_pod("dev", "node-a", gpus=1, namespace=name, labels=DEV)
    two_nodes.add_dev_pod("dev", "node-a", gpus=2, labels=DEV)
    two_nodes.access.deny("*", "*", "private")
    connection = {"kubeconfig": str(two_nodes.kubeconfig), "namespace": "fermi"}
    seen = Seen({**connection, "environmentNamespaces": ["notebooks", "private", "fermi"]})
    try:
        one = running(seen, "notebooks/dev")
        assert one.engine["namespace"] == "notebooks"
        assert running(seen, "fermi/dev").engine["gpus"]["held"] == 3, "those of `private` may not be looked at"
        assert seen.found.keys() == {"fermi/dev", "notebooks/dev"}
    finally:
        seen.close()
    assert not [call for call in two_nodes.calls(user_agent="fermi") if call.namespace == "stranger"]


def test_emulated_gpus_are_shown_as_such(two_nodes: FakeCluster, seen: Seen) -> None:
    notes = {"fermi.io/emulated-gpus": "2", "fermi.io/gpu-type": "A100"}
    two_nodes.add_dev_pod("dev", "node-a", labels=DEV, annotations=notes)
    one = running(seen, "fermi/dev")
    assert (one.gpu_count, one.gpu_type, one.emulated) == (2, "A100", True)


def test_a_stateful_set_scaled_to_zero_is_a_stopped_environment(two_nodes: FakeCluster, seen: Seen) -> None:
    sets = named("statefulsets")
    limits = {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}
    container = {"name": "dev", "image": "codercom/code-server", "resources": {"limits": limits}}
    two_nodes.api.create(sets, "fermi", {
        "metadata": {"name": "lab", "labels": DEV},
        "spec": {"replicas": 0, "serviceName": "lab", "selector": {"matchLabels": DEV},
                 "template": {"metadata": {"labels": DEV}, "spec": {
                     "containers": [container], "nodeSelector": {"kubernetes.io/hostname": "node-b"}}}},
    })  # fmt: skip
    one = seen.until(lambda found: found.get("fermi/lab-0"), "it is seen")
    assert (one.running, one.healthy, one.gpu_count, one.kind, one.cpu_cores) == (False, True, 1, "vscode", 4)
    two_nodes.script("lab-0", Sleeps())
    two_nodes.api.patch(sets, "fermi", "lab", {"spec": {"replicas": 1}}, "application/merge-patch+json")
    assert running(seen, "fermi/lab-0").zone == "zone-b"


def test_without_permission_to_read_nodes_pods_are_still_discovered(kubernetes: FakeCluster) -> None:
    kubernetes.add_node("node-a", gpus=8)
    kubernetes.access.deny("*", "nodes")
    kubernetes.add_dev_pod("dev", "node-a", gpus=2, labels=DEV)
    seen = Seen({"kubeconfig": str(kubernetes.kubeconfig), "namespace": "fermi"})
    try:
        one = running(seen, "fermi/dev")
        assert (one.gpu_count, one.zone, one.gpu_type) == (2, "", "")
    finally:
        seen.close()


def test_an_unreachable_cluster_raises(kubernetes: FakeCluster) -> None:
    kubernetes.access.deny("list", "pods")
    with pytest.raises(BackendError):
        next(follow({"kubeconfig": str(kubernetes.kubeconfig), "namespace": "fermi"}, threading.Event()))


@pytest.mark.parametrize("trouble", ["break_connections", "compact_and_break", "restart"])
def test_the_watch_continues_after_errors(
    two_nodes: FakeCluster, seen: Seen, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "MIN_PAUSE_SECONDS", 0.01)
    two_nodes.add_dev_pod("first", "node-a", labels=DEV)
    running(seen, "fermi/first")
    if trouble == "restart":
        two_nodes.restart_api()
    else:
        two_nodes.break_connections()
        if trouble == "compact_and_break":
            two_nodes.compact()
    two_nodes.add_dev_pod("second", "node-b", labels=DEV)
    running(seen, "fermi/second")
    assert set(seen.found) == {"fermi/first", "fermi/second"}


def test_the_first_snapshot_has_survey_results(two_nodes: FakeCluster) -> None:
    """Or environments would count as not looked into after each restart of the platform, and tasks run beside them."""
    for name in ("one", "two"):
        two_nodes.add_dev_pod(name, "node-a", labels=DEV)
        until(lambda name=name: two_nodes.pods(name)[0]["status"].get("phase") == "Running", what=f"{name} runs")
    first = next(follow({"kubeconfig": str(two_nodes.kubeconfig), "namespace": "fermi"}, threading.Event()))
    assert [bool(found.engine.get("inside")) for found in first] == [True, True]


def test_the_first_snapshot_has_what_a_survey_finds_while_it_is_made(
    two_nodes: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = survey.EnvironmentSurveys.find_survey

    def find_too_early(surveys: survey.EnvironmentSurveys, *asked: Any) -> survey.SurveyFacts | None:
        facts = find(surveys, *asked)
        until(lambda: not surveys.busy, what="the survey ends right after it was read")
        return facts

    monkeypatch.setattr(survey.EnvironmentSurveys, "find_survey", find_too_early)
    two_nodes.add_dev_pod("one", "node-a", labels=DEV)
    until(lambda: two_nodes.pods("one")[0]["status"].get("phase") == "Running", what="it runs")
    first = next(follow({"kubeconfig": str(two_nodes.kubeconfig), "namespace": "fermi"}, threading.Event()))
    assert [bool(found.engine.get("inside")) for found in first] == [True]


def test_an_interpreter_created_later_is_found(
    two_nodes: FakeCluster, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a virtual environment that somebody makes in the notebook: looked for again, without other news."""
    monkeypatch.setattr(survey, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(survey, "MAX_RETRY_SECONDS", 0.1)
    notes = {"fermi.io/python": f"{HOME}/venv/bin/python"}
    two_nodes.add_dev_pod("dev", "node-a", labels=DEV, annotations=notes, real=True)

    def inside(found: dict[str, DiscoveredEnvironment]) -> Any:
        return "fermi/dev" in found and found["fermi/dev"].engine.get("inside")

    seen.until(lambda found: (inside(found) or {}).get("why") == "INSIDE_PYTHON_UNUSABLE", "there is none yet")
    made = run(two_nodes, two_nodes.pods("dev")[0], sys.executable, "-m", "venv", "--without-pip", f"{HOME}/venv")
    assert made.code == 0, made.err
    seen.until(lambda found: "python" in inside(found), "it is found")


@pytest.mark.parametrize(("script", "why"), [
    (Waits("ImagePullBackOff"), "ImagePullBackOff"), (Exits(1), "CrashLoopBackOff, exit code 1"),
])  # fmt: skip
def test_a_stopped_environment_gives_the_reason_why_it_cannot_be_entered(
    two_nodes: FakeCluster, seen: Seen, script: Waits | Exits, why: str
) -> None:
    two_nodes.script("dev", script)
    two_nodes.add_pod("dev", {"nodeName": "node-a", "containers": [{"name": "dev", "image": "i"}]}, labels=DEV)
    wanted = {"why": "INSIDE_NOT_RUNNING", "params": {"why": why}}
    seen.until(lambda found: found.get("fermi/dev") and found["fermi/dev"].engine.get("inside") == wanted, str(wanted))
    assert not seen.found["fermi/dev"].running


def test_nothing_is_removed_while_an_api_server_starts(
    two_nodes: FakeCluster, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It forbids everything until it has read who may do what (seen on Kubernetes 1.36)."""
    monkeypatch.setattr(mirror, "MIN_PAUSE_SECONDS", 0.01)
    two_nodes.add_dev_pod("first", "node-a", labels=DEV)
    assert running(seen, "fermi/first").zone == "zone-a"
    two_nodes.server.access.loading = True
    two_nodes.restart_api()
    until(lambda: [one for one in two_nodes.calls(resource="nodes") if one.code == 403], what="it is forbidden")
    two_nodes.server.access.loading = False
    two_nodes.add_dev_pod("second", "node-b", labels=DEV)
    until(lambda: running(seen, "fermi/second").zone == "zone-b", what="nodes are read again")
    assert seen.found["fermi/first"].zone == "zone-a"


def test_an_idle_cluster_gets_no_requests(two_nodes: FakeCluster, seen: Seen) -> None:
    two_nodes.add_dev_pod("dev", "node-a", labels=DEV)
    seen.until(lambda found: found.get("fermi/dev") and found["fermi/dev"].engine.get("inside"), "it is looked into")
    before, told = len(two_nodes.calls()), seen.told
    two_nodes.add_dev_pod("other", "node-b")  # moves the resource version on, and concerns nobody here
    until(lambda: two_nodes.pods("other")[0]["status"].get("phase") == "Running", what="another pod runs")
    assert (len(two_nodes.calls()), seen.told) == (before, told)


@pytest.mark.parametrize(
    ("text", "value"), [("2", 2), ("500m", 0.5), ("2Gi", 2**31), ("1e3", 1000), ("128974848", 128974848), ("x", 0)]
)
def test_quantities_are_parsed_as_numbers(text: str, value: float) -> None:
    assert environment_pods.parse_quantity(text) == value
