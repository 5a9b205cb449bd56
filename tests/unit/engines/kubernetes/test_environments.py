"""Dev environments made on Kubernetes: what is sent, what the API server takes of it, and real keepers in its pods."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from fermi.engines.environments import (
    EnvironmentHandle,
    EnvironmentPhase,
    EnvironmentPort,
    EnvironmentSpec,
    EnvironmentStatus,
)
from fermi.engines.kubernetes import discover, environment_objects, environments, module_configmap, permissions, survey
from fermi.engines.kubernetes.client import KubernetesApiError
from fermi.engines.kubernetes.engine import KubernetesBackend
from fermi.envd import protocol
from fermi.envd.supervisor import build_termination_message
from fermi.jobs import run_location
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import LogChunk, Node, Phase, RunLocation
from fermi.planning import plugins
from fermi.runner.record_frames import strip_frames
from tests.fakes.kubernetes import errors, resources
from tests.fakes.kubernetes.cluster import FakeCluster
from tests.fakes.kubernetes.kubelet.containers import Sleeps, Waits
from tests.polling import until
from tests.unit.engines.kubernetes.conftest import job, submit, until_seen

SPEC = EnvironmentSpec(
    "env-1", "notes", "project-one", 1, "custom", "training:1", cpu_cores=1, memory_gb=1, shared_memory_gb=1, disk_gb=5
)
FIRST = EnvironmentHandle("env-1", 1)


class Lab:
    def __init__(self, cluster: FakeCluster, **connection: Any) -> None:
        self.cluster = cluster
        self.connection = {"kubeconfig": str(cluster.kubeconfig), "namespace": cluster.namespace, **connection}
        self.engine = environments.KubernetesEnvironmentBackend(self.connection)

    def start(self, spec: EnvironmentSpec = SPEC, **secrets: str) -> None:
        self.engine.start(self.engine.render(spec), secrets)

    def seen(self, handle: EnvironmentHandle = FIRST) -> EnvironmentStatus:
        return self.engine.observe([handle])[handle.name]

    def until(self, phase: EnvironmentPhase, handle: EnvironmentHandle = FIRST) -> EnvironmentStatus:
        until(lambda: self.seen(handle).phase is phase, what=f"{handle.name} is {phase}", seconds=60)
        return self.seen(handle)

    def end(self, handle: EnvironmentHandle = FIRST) -> None:
        def gone() -> bool:
            self.engine.stop(handle, 5)
            return self.seen(handle).left is False

        until(gone, what=f"nothing is left of {handle.name}", seconds=60)


@pytest.fixture
def lab(kubernetes: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr(environment_objects, "ENVD_PORT", port)
    monkeypatch.setattr(environments, "ENVD_PORT", port)
    monkeypatch.setattr(environments, "STATUS_CACHE_SECONDS", 0.0)
    kubernetes.add_node("node-a", cpu="8", memory="64Gi", gpus=4)
    made = Lab(kubernetes)
    yield made
    made.engine.client.close()


def run(lab: Lab, command: str, handle: EnvironmentHandle = FIRST) -> str:
    """What a shell inside prints."""
    with lab.engine.dial(handle) as stream:
        answer = protocol.send_request(
            stream, {"open": "exec", "command": ["sh", "-c", command], "cwd": "", "env": {}, "tty": None}
        )
        assert answer["ok"], answer
        stream.settimeout(30)
        frames, printed = protocol.FrameDecoder(), b""
        while data := stream.recv(1 << 16):
            for channel, payload in frames.feed(data):
                printed += payload if channel == protocol.OUT else b""
                if channel == protocol.CONTROL:
                    return printed.decode()
    raise AssertionError(printed)


def test_an_environment_with_real_envd_keeps_its_disk_and_leaves_no_objects(lab: Lab) -> None:
    first = replace(SPEC, env={"COLOUR": "blue"}, secret_env={"TOKEN": "hub"}, ports=(EnvironmentPort("board", 6006),))
    lab.start(first, TOKEN="s3cret")
    seen = lab.until(EnvironmentPhase.RUNNING)
    assert seen.facts["host"] == "node-a"
    assert [one["name"] for one in seen.facts["engine"]["volumes"]] == ["disk"]
    assert run(lab, "echo $COLOUR $TOKEN; echo kept > $HOME/file; echo $FERMI_KEEPER_TOKEN") == "blue s3cret\n\n"
    lab.start(first)  # again: nothing
    assert len(lab.cluster.all("statefulsets")) == 1
    with pytest.raises(BackendError, match="ENVIRONMENT_AWAY"):
        lab.engine.dial(EnvironmentHandle("env-1", 2))

    lab.end()
    assert lab.cluster.names("pods") == []
    assert lab.cluster.names("persistentvolumeclaims") == ["env-1"]
    lab.start(first)
    assert lab.seen().phase is EnvironmentPhase.ENDED, "a run has one life"

    second = EnvironmentHandle("env-1", 2)
    lab.start(replace(SPEC, run=2, disk_gb=9))
    lab.until(EnvironmentPhase.RUNNING, second)
    assert run(lab, "cat $HOME/file; echo [$COLOUR]", second) == "kept\n[]\n"
    (disk,) = lab.cluster.all("persistentvolumeclaims")
    assert disk["spec"]["resources"]["requests"]["storage"] == "9Gi"
    assert lab.seen().left is False, "the first run"
    assert "s3cret" not in str(lab.cluster.all("configmaps") + lab.cluster.all("statefulsets"))

    lab.end(second)
    until(lambda: lab.engine.delete("env-1"), what="nothing is left")
    for kind in ("statefulsets", "services", "configmaps", "secrets", "persistentvolumeclaims", "pods"):
        assert [name for name in lab.cluster.names(kind) if name.startswith("env-1")] == []
    assert lab.engine.delete("env-1")


def test_a_task_trains_inside_a_managed_environment_on_its_gpus(lab: Lab, tmp_path: Path) -> None:
    lab.cluster.add_dev_pod("dev", "node-a", gpus=1, labels={"fermi.io/dev-environment": "true"})
    lab.start(replace(SPEC, gpu_type="A100", gpu_count=3))
    seen = lab.until(EnvironmentPhase.RUNNING)
    engine = seen.facts["engine"]
    assert engine["gpus"] == {"there": 4, "held": 4}, "the discovered one's, too"
    assert engine["inside"]["python"]
    node = Node("env-1", "notes", "node-a", gpu_type="A100", gpu_count=3, image="training:1", engine=engine)
    script = "import os; print(os.environ['RANK'], os.getcwd(), sorted(os.environ.keys() & {'FERMI_KEEPER_TOKEN'}))"
    backend = KubernetesBackend({**lab.connection, "data_dir": str(tmp_path / "data")})
    wanted = replace(job(script=script), nodes=(node,), master="env-1")
    wanted, wrong = run_location.choose_run_locations(wanted, backend.find_run_locations(wanted))
    assert (wanted.head.way, wrong) == (RunLocation(True, "BESIDE_GPUS_HELD", ANY), [])
    stop = threading.Event()
    watcher = threading.Thread(target=backend.watch, args=(stop, lambda _: None))
    watcher.start()
    try:
        attempt = submit(backend, wanted)
        until_seen(backend, attempt, lambda seen: seen.phase is Phase.SUCCEEDED, "it trains inside")
        home = run(lab, "cd $HOME && pwd").strip()
        for rank in range(3):
            assert strip_frames(backend.logs(attempt, rank, 0).data).decode() == f"{rank} {home} []\n"
        assert lab.cluster.names("pods") == ["dev", "env-1-0"], "and no pod was made"
    finally:
        stop.set()
        watcher.join()
        backend.close()


def test_an_environment_that_cannot_be_surveyed_runs(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.cluster.access.deny("get", "pods/exec")
    lab.start()
    assert lab.until(EnvironmentPhase.RUNNING).facts["engine"]["inside"]["why"] == "INSIDE_FORBIDDEN"
    monkeypatch.setattr(environments, "SURVEY_SECONDS", 0.0)
    monkeypatch.setattr(survey.EnvironmentSurveys, "find_survey", lambda *_: None)
    assert lab.until(EnvironmentPhase.RUNNING).facts["engine"]["inside"] == {}


def test_a_stream_ends_quietly_on_both_sides(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that goes while bytes are on their way to it, and a pod that goes under its caller."""
    raised: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    lab.start()
    lab.until(EnvironmentPhase.RUNNING)
    command: dict[str, Any] = {"open": "exec", "command": ["sh", "-c", "yes"], "cwd": "", "env": {}, "tty": None}
    first, second = lab.engine.dial(FIRST), lab.engine.dial(FIRST)
    for stream in (first, second):
        assert protocol.send_request(stream, command)["ok"]
        assert stream.recv(1)
    first.close()
    lab.end()
    second.settimeout(30)
    with suppress(ConnectionResetError):
        while second.recv(1 << 20):
            pass
    second.close()

    def left() -> list[str]:
        return [one.name for one in threading.enumerate() if "port forward" in one.name]

    until(lambda: not left(), what="no thread is left")
    assert [str(one.exc_value) for one in raised] == []


def records(lab: Lab) -> list[str]:
    return [name for name in lab.cluster.names("configmaps") if name.startswith("env-")]


def shared(lab: Lab) -> list[str]:
    return [name for name in lab.cluster.names("configmaps") if name.startswith("fermi-modules-")]


def test_a_secret_is_deleted_with_its_run(lab: Lab) -> None:
    """When the run is stopped, and, where nobody stopped it, when the next one begins."""
    lab.cluster.script("env-1-0", Sleeps())
    first = replace(SPEC, secret_env={"TOKEN": "hub"})
    lab.start(first, TOKEN="old-value")
    assert lab.cluster.names("secrets") == ["env-1-1"]
    lab.engine.stop(FIRST, 5)
    lab.engine.stop(FIRST, 5)
    until(lambda: lab.cluster.names("secrets") == [], what="the old value is gone")
    assert records(lab) == ["env-1-1"], "it says that the run is over"
    lab.start(first, TOKEN="old-value")
    assert lab.cluster.names("secrets") == []

    lab.start(replace(first, run=2), TOKEN="newer-value")
    assert records(lab) == ["env-1-2"]
    lab.start(replace(first, run=3), TOKEN="newest-value")
    until(lambda: lab.cluster.names("secrets") == ["env-1-3"], what="the last value is there alone")
    assert records(lab) == ["env-1-3"]
    assert lab.seen(EnvironmentHandle("env-1", 2)).left is False


def test_runs_of_a_release_share_its_modules_until_unused(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.cluster.script("env-1-0", Sleeps())
    lab.cluster.script("env-2-0", Sleeps())
    lab.start()
    lab.start(replace(SPEC, id="env-2"))
    (name,) = shared(lab)
    assert len([call for call in lab.cluster.calls("create", "configmaps") if call.name == name]) == 1
    lab.cluster.api.delete(resources.CONFIGMAPS, lab.cluster.namespace, name, {})
    lab.end()
    lab.start(replace(SPEC, run=2))
    assert shared(lab) == [name], "made again where somebody removed it"
    own = [one for one in lab.cluster.all("configmaps") if one["metadata"]["name"] in records(lab)]
    assert [one["data"].keys() for one in own] == [{"keeper.json"}] * 2

    def ends(environment: str) -> None:
        until(lambda: lab.engine.delete(environment), what="nothing is left")

    ends("env-2")
    with monkeypatch.context() as later:
        later.setattr(module_configmap, "MIN_AGE_SECONDS", -60.0)
        assert lab.engine.delete("env-2")
        assert shared(lab) == [name], "another environment needs them"
    ends("env-1")
    assert shared(lab) == [name], "they are soon needed again"
    with monkeypatch.context() as later:
        later.setattr(module_configmap, "MIN_AGE_SECONDS", -60.0)
        assert lab.engine.delete("env-1")
    assert shared(lab) == []


def test_modules_needed_during_their_deletion_are_created_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    made = module_configmap.build_config_map({"fermi/__init__.py": ""}, lab.cluster.namespace)
    module_configmap.ensure_config_map(lab.engine.client, made)
    monkeypatch.setattr(module_configmap, "MIN_AGE_SECONDS", -60.0)
    delete, needs = lab.engine.client.delete, {"name": "somebody", "labels": {**made["metadata"]["labels"]}}

    def overtaken(kind: str, name: str, **options: str) -> None:
        delete(kind, name, **options)
        lab.engine.client.create("ConfigMap", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": needs})

    monkeypatch.setattr(lab.engine.client, "delete", overtaken)
    module_configmap.delete_unused(lab.engine.client)
    (again,) = [one for one in lab.cluster.all("configmaps") if one["metadata"]["name"] in shared(lab)]
    assert (again["data"], again["immutable"]) == (made["data"], True)


def test_a_run_stopped_before_it_started_never_starts(lab: Lab) -> None:
    assert lab.seen() == EnvironmentStatus(EnvironmentPhase.ABSENT, None)
    lab.engine.stop(FIRST, 5)
    lab.start()
    assert lab.seen() == EnvironmentStatus(EnvironmentPhase.ABSENT, False)
    assert lab.cluster.names("statefulsets") == []


def test_an_interrupted_start_is_completed_by_the_next(lab: Lab) -> None:
    lab.cluster.script("env-1-0", Sleeps())
    for kind in ("persistentvolumeclaims", "services", "statefulsets"):
        lab.cluster.faults.refuse("create", kind, errors.internal())
        with pytest.raises(KubernetesApiError):
            lab.start()
    lab.start()
    until(lambda: lab.cluster.names("pods") == ["env-1-0"], what="its pod is there")


@pytest.mark.parametrize(
    ("script", "phase", "code"),
    [
        (Waits("ImagePullBackOff", "Back-off pulling image"), EnvironmentPhase.STARTING, "IMAGE_UNAVAILABLE"),
        (
            Waits("ContainerCreating", "no such driver", "FailedPrepareDynamicResources"),
            EnvironmentPhase.STARTING,
            "DEVICES_UNAVAILABLE",
        ),
        (Waits("ErrImagePull", "manifest unknown"), EnvironmentPhase.ENDED, "IMAGE_UNAVAILABLE"),
    ],
)
def test_the_reason_why_it_does_not_start_is_given(lab: Lab, script: Any, phase: EnvironmentPhase, code: str) -> None:
    lab.cluster.script("env-1-0", script)
    lab.start()
    seen = lab.until(phase)
    until(lambda: (lab.seen().waiting or lab.seen().cause) is not None, what="a cause is given")
    seen = lab.seen()
    found = seen.waiting or seen.cause
    assert found
    assert (seen.phase, found.code) == (phase, code)
    lab.end()


def test_an_environment_whose_pod_is_replaced_is_starting(lab: Lab) -> None:
    lab.cluster.script("env-1-0", Sleeps(deaf=True))
    lab.start()
    until(lambda: lab.seen().facts.get("host"), what="it is placed")
    lab.engine.client.delete("Pod", "env-1-0", grace=60)
    seen = lab.seen()
    assert (seen.phase, seen.waiting and seen.waiting.code) == (EnvironmentPhase.STARTING, "POD_AWAITED")
    lab.cluster.manager.pause(on=True)
    lab.engine.client.delete("Pod", "env-1-0", propagation="Background", grace=0)
    seen = lab.seen()
    assert (seen.phase, seen.waiting and seen.waiting.params["evidence"]) == (
        EnvironmentPhase.STARTING,
        "it is not there",
    )
    lab.cluster.manager.pause(on=False)


def test_an_environment_that_fits_no_node_names_what_is_missing(lab: Lab) -> None:
    lab.start(replace(SPEC, gpu_count=9))
    until(lambda: lab.seen().waiting is not None, what="the scheduler has spoken")
    waiting = lab.seen().waiting
    assert waiting
    assert waiting.code == "GPU_INSUFFICIENT"
    assert waiting.params["node"] == "notes"


def test_an_environment_runs_where_no_node_has_a_zone(kubernetes: FakeCluster) -> None:
    kubernetes.add_node("bare", zone="")
    kubernetes.script("env-1-0", Sleeps())
    lab = Lab(kubernetes)
    assert lab.engine.zones() == set()
    lab.start()
    until(lambda: lab.engine.observe([FIRST])[FIRST.name].facts.get("host") == "bare", what="it is placed")
    assert "zone" not in lab.seen().facts
    lab.engine.client.close()


def test_its_zone_is_that_of_its_node(lab: Lab) -> None:
    lab.cluster.script("env-1-0", Sleeps())
    lab.cluster.add_node("bare", zone="")
    assert lab.engine.zones() == {"zone-a"}
    lab.start(replace(SPEC, zone="zone-a"))
    until(lambda: lab.seen().facts.get("zone") == "zone-a", what="its zone is known")


def test_without_permission_to_read_nodes_zones_are_unknown(lab: Lab) -> None:
    lab.cluster.access.deny(resource="nodes")
    lab.cluster.script("env-1-0", Sleeps())
    assert lab.engine.zones() is None
    lab.start()
    until(lambda: lab.seen().facts.get("host") == "node-a", what="it is placed")
    assert "zone" not in lab.seen().facts


def test_an_environment_without_matching_node_labels_waits_for_a_node(lab: Lab) -> None:
    """As an autoscaler adds it, after it has seen a pod that fits nowhere."""
    lab.cluster.script("env-1-0", Sleeps())
    lab.start(replace(SPEC, zone="zone-b"))
    until(lambda: lab.seen().waiting is not None, what="the scheduler has spoken")
    seen = lab.seen()
    assert (seen.phase, seen.waiting and seen.waiting.code) == (EnvironmentPhase.STARTING, "NODE_LABELS_MISSING")
    assert seen.waiting
    assert seen.waiting.params["labels"] == "topology.kubernetes.io/zone In zone-b"
    lab.cluster.add_node("new", zone="zone-b")
    until(lambda: lab.seen().facts.get("host") == "new", what="it is on the new node")


def test_an_environment_pinned_to_a_missing_machine_ends(lab: Lab) -> None:
    lab.start(replace(SPEC, host="elsewhere"))
    cause = lab.until(EnvironmentPhase.ENDED).cause
    assert cause
    assert cause.code == "NODE_MISSING"


def test_a_quota_that_prevents_the_pod_is_named(lab: Lab) -> None:
    lab.cluster.add_quota("small", {"requests.memory": "1Mi"})
    lab.start()
    until(lambda: lab.seen().waiting is not None, what="the controller has spoken")
    waiting = lab.seen().waiting
    assert waiting
    assert waiting.code == "QUOTA_EXCEEDED"


def test_discovery_ignores_managed_environments(lab: Lab) -> None:
    lab.cluster.script("env-1-0", Sleeps())
    lab.cluster.add_dev_pod("theirs", "node-a", labels={"fermi.io/dev-environment": "true"})
    lab.start()
    until(lambda: len(lab.cluster.names("pods")) == 2, what="both pods are there")
    selector = {"selector": "fermi.io/dev-environment!=none"}  # theirs, ours, everything
    stop = threading.Event()
    try:
        seen = next(discover.follow({**lab.connection, **selector}, stop))
    finally:
        stop.set()
    assert [one.name for one in seen] == ["theirs"]


def test_gpus_are_claimed_by_device_class_and_shared_with_training_inside() -> None:
    connection = {"environments": {"deviceClass": "gpu.nvidia.com", "storageClass": "fast"}, "namespace": "fermi"}
    made = {
        one.kind: one.content
        for one in environment_objects.render(replace(SPEC, gpu_count=2, zone="zone-a"), connection).artifacts
    }
    assert made["ResourceClaim"]["spec"]["devices"]["requests"] == [
        {
            "name": "gpus",
            "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 2},
        }
    ]
    pod = made["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["resourceClaims"] == [{"name": "gpus-0", "resourceClaimName": "env-1"}]
    assert "nvidia.com/gpu" not in pod["containers"][0]["resources"]["limits"]
    facts = environments._build_facts(
        {"metadata": {"name": "env-1-0", "namespace": "fermi"}, "spec": pod, "status": {}}
    )
    assert facts["engine"]["resourceClaims"] == ["env-1"], "as render.py takes it for training pods"
    assert made["PersistentVolumeClaim"]["spec"]["storageClassName"] == "fast"
    expressions = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert expressions["nodeSelectorTerms"][0]["matchExpressions"] == [
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]}
    ]


def test_the_resource_claim_and_its_pod_are_accepted_by_the_api_server(kubernetes: FakeCluster) -> None:
    kubernetes.install("dra")
    kubernetes.script("env-1-0", Sleeps())
    lab = Lab(kubernetes, environments={"deviceClass": "gpu.nvidia.com"})
    lab.start(replace(SPEC, gpu_count=2))
    assert kubernetes.names("resourceclaims") == ["env-1"]
    lab.end()
    until(lambda: lab.engine.delete("env-1"), what="nothing is left")
    assert kubernetes.names("resourceclaims") == []
    lab.engine.client.close()


def test_every_request_is_covered_by_its_documented_permissions() -> None:
    plain = {rule.resource for rule, _ in permissions.iterate_rules({})}
    assert {"statefulsets", "persistentvolumeclaims", "pods/portforward", "pods/exec"} <= plain
    verbs = {
        verb
        for rule, _ in permissions.iterate_rules({"environments": {"deviceClass": "x"}})
        if rule.resource == "resourceclaims"
        for verb in rule.verbs
    }
    assert {"get", "create", "delete"} <= verbs


def test_invalid_specs_are_refused() -> None:
    engine = environments.KubernetesEnvironmentBackend({})
    codes = [
        one.code
        for one in engine.problems(
            replace(SPEC, image="", ports=(EnvironmentPort("x", environment_objects.ENVD_PORT),))
        )
    ]
    assert codes == ["IMAGE_NEEDED", "PORT_IS_KEEPERS"]


def test_a_disk_that_cannot_grow_refuses_another_size(kubernetes: FakeCluster) -> None:
    kubernetes.add_storage_class("fixed", grows=False)
    kubernetes.add_node("node-a")
    kubernetes.script("env-1-0", Sleeps())
    lab = Lab(kubernetes, environments={"storageClass": "fixed"})
    assert lab.engine.resize_problems(SPEC) == [], "there is no disk yet"
    lab.start()
    until(lambda: kubernetes.all("persistentvolumeclaims")[0]["status"]["phase"] == "Bound", what="it is bound")
    assert lab.engine.resize_problems(SPEC) == []
    (problem,) = lab.engine.resize_problems(replace(SPEC, disk_gb=9))
    assert (problem.field, problem.code, problem.params["storageClass"]) == ("diskGb", "DISK_CANNOT_GROW", "fixed")
    assert problem.params["why"].endswith("must support resize")
    lab.end()
    lab.start(replace(SPEC, run=2, disk_gb=9))  # asked for before this was checked
    until(lambda: lab.cluster.names("pods") == ["env-1-0"], what="it runs all the same")
    lab.engine.client.close()


def test_a_disk_that_can_grow_is_checked_without_changing_it(lab: Lab) -> None:
    lab.cluster.script("env-1-0", Sleeps())
    lab.start()
    until(lambda: lab.cluster.all("persistentvolumeclaims")[0]["status"]["phase"] == "Bound", what="it is bound")
    assert lab.engine.resize_problems(replace(SPEC, disk_gb=9)) == []
    (disk,) = lab.cluster.all("persistentvolumeclaims")
    assert disk["spec"]["resources"]["requests"]["storage"] == "5Gi"
    (problem,) = lab.engine.resize_problems(replace(SPEC, disk_gb=4))
    assert problem.code == "DISK_CANNOT_SHRINK"
    lab.cluster.access.deny("patch", "persistentvolumeclaims")
    (problem,) = lab.engine.resize_problems(replace(SPEC, disk_gb=9))
    assert problem.code == "ENGINE_FORBIDDEN"


def test_the_cause_of_a_failed_service_and_its_log_outlive_the_pod(lab: Lab) -> None:
    said = "no such model 模型"
    lab.start(replace(SPEC, start_script=f"echo {said}; exit 3"))
    cause = lab.until(EnvironmentPhase.ENDED).cause
    assert cause
    assert (cause.code, cause.params["exitCode"]) == ("SERVICE_CRASHED", 3)
    assert said in cause.params["output"]
    assert not plugins.get_causes("kubernetes")[cause.code].retry, "another run would end in the same way"
    (pod,) = lab.cluster.pods("env-1-0")
    ended = environments._get_container_status(pod)
    assert (ended["state"].get("terminated") or ended["lastState"]["terminated"])["exitCode"] == 1
    until(
        lambda: environments._get_container_status(lab.cluster.pods("env-1-0")[0])["restartCount"] == 1,
        what="it was begun again",
    )
    assert lab.until(EnvironmentPhase.ENDED).cause == cause
    log = lab.engine.logs(FIRST, 0)
    assert said in log.data.decode()
    lab.end()
    assert lab.cluster.names("pods") == []
    kept = lab.engine.logs(FIRST, 0)
    assert kept.data == log.data
    assert kept.end
    assert lab.engine.logs(FIRST, -5) == LogChunk(log.data[-5:], len(log.data), end=True)


@pytest.mark.parametrize("said", ["", "{", '{"cause": {"code": "NODE_LOST"}}', '{"cause": {"code": 3}}', "[]"])
def test_unknown_messages_of_envd_are_only_evidence(said: str) -> None:
    ended = {"exitCode": 1, "reason": "Error", "message": said}
    status = {"phase": "Running", "containerStatuses": [{"name": "node", "lastState": {"terminated": ended}}]}
    cause = environments._find_end({"metadata": {"name": "env-1-0"}, "spec": {"nodeName": "node-a"}, "status": status})
    assert cause
    assert cause.code == "KEEPER_ENDED"


def test_envds_last_message_fits_the_termination_message() -> None:
    params = {"kind": "custom", "exitCode": 1, "output": "模" * 2000, "why": '"' * 2000}
    said = build_termination_message({"code": "SERVICE_CRASHED", "params": params})
    assert len(said) <= 4096
    cause = environments._parse_termination_cause(said.decode())
    assert cause
    assert (cause.code, cause.params["exitCode"]) == ("SERVICE_CRASHED", 1)
    assert cause.params["output"].endswith("模")


def test_the_end_of_envd_is_the_end_of_the_run(lab: Lab) -> None:
    lab.cluster.script("env-1-0", Sleeps())
    lab.start()
    until(lambda: lab.cluster.names("pods") == ["env-1-0"], what="its pod is there")
    (pod,) = lab.cluster.pods("env-1-0")
    ended = {"exitCode": 1, "reason": "Error", "message": "no module named fermi"}
    pod["status"] = {"phase": "Running", "containerStatuses": [{"name": "node", "lastState": {"terminated": ended}}]}
    cause = environments._find_end(pod)
    assert cause
    assert (cause.code, cause.params["evidence"]) == ("KEEPER_ENDED", "1: no module named fermi")
    pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"] = "OOMKilled"
    assert (environments._find_end(pod) or cause).code == "OUT_OF_MEMORY"
