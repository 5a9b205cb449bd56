"""Pods: where they are placed, what their processes see, how they end, what they printed."""

import json
import threading
import time
from pathlib import Path

import pytest
from kubernetes import watch
from kubernetes.client.exceptions import ApiException

from tests.fakes.kubernetes import Evicted, Exits, Sleeps, Waits
from tests.fakes.kubernetes.kubelet.logs import Log
from tests.fakes.objects import config_map, pod_spec
from tests.polling import until

NS = "fermi"


@pytest.fixture
def node(kubernetes):
    kubernetes.add_node("node-a", gpus=4)


def start(clients, name: str, *command: str, **spec) -> None:
    clients.core.create_namespaced_pod(NS, {"metadata": {"name": name}, "spec": pod_spec(*command, **spec)})


def read(clients, name: str):
    return clients.core.read_namespaced_pod(name, NS)


def in_phase(clients, name: str, *phases: str):
    return until(lambda: (pod := read(clients, name)).status.phase in phases and pod, what=f"{name} in {phases}")


def python(text: str) -> tuple[str, ...]:
    return "python", "-u", "-c", text


def why_pending(kubernetes, name: str) -> str:
    def found():
        (pod,) = kubernetes.pods(name)
        conditions = pod["status"].get("conditions") or []
        return next((c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "")

    return until(found)


def test_a_pod_runs_its_command_with_its_environment_and_files(kubernetes, clients, node, tmp_path):
    clients.core.create_namespaced_config_map(
        NS, config_map("files", main="print(open('/etc/job/name').read())", name="x")
    )
    kubernetes.add_claim("data", tmp_path)
    (tmp_path / "rows").write_text("42")
    spec = pod_spec(
        "sh", "-c", "python /etc/job/code/main.py; echo $WHO $SIZE $(GREETING) '$$(GREETING)'; cat /data/rows"
    )
    container = spec["containers"][0]
    container["env"] = [
        {"name": "GREETING", "value": "hello"},
        {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "SIZE", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
    ]
    container["resources"] = {"limits": {"memory": "1Gi"}}
    items = [{"key": "main", "path": "code/main.py"}, {"key": "name", "path": "name"}]
    spec["volumes"] = [
        {"name": "files", "configMap": {"name": "files", "items": items}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    container["volumeMounts"] = [
        {"name": "files", "mountPath": "/etc/job"},
        {"name": "data", "mountPath": "/data"},
    ]
    clients.core.create_namespaced_pod(NS, {"metadata": {"name": "a"}, "spec": spec})
    in_phase(clients, "a", "Succeeded", "Failed")
    assert clients.core.read_namespaced_pod_log("a", NS).splitlines() == ["x", "a 1024 hello $(GREETING)", "42"]


def test_names_of_a_headless_service_resolve_once_it_exists(kubernetes, clients, node):
    names = "head.group head.group.fermi head.group.fermi.svc head.group.fermi.svc.cluster.local head.other group.x"
    start(clients, "early", "echo", *names.split())
    in_phase(clients, "early", "Succeeded")
    clients.core.create_namespaced_service(NS, {"metadata": {"name": "group"}, "spec": {"clusterIP": "None"}})
    start(clients, "late", "echo", *names.split())
    in_phase(clients, "late", "Succeeded")
    assert clients.core.read_namespaced_pod_log("early", NS).strip() == names
    assert clients.core.read_namespaced_pod_log("late", NS).split() == ["127.0.0.1"] * 4 + ["head.other", "group.x"]


def test_exit_code_and_termination_message_reach_the_status(clients, node):
    start(clients, "a", *python("open('/dev/termination-log', 'w').write('disk full'); raise SystemExit(3)"))
    ended = in_phase(clients, "a", "Failed").status.container_statuses[0].state.terminated
    assert (ended.exit_code, ended.reason, ended.message) == (3, "Error", "disk full")


def test_the_end_of_a_long_message_is_kept(clients, node):
    text = "x" * 3000 + "y" * 3000
    start(clients, "a", *python(f"open('/dev/termination-log', 'w').write({text!r})"))
    ended = in_phase(clients, "a", "Succeeded").status.container_statuses[0].state.terminated
    assert (ended.exit_code, ended.message) == (0, text[-4096:])


def test_the_end_of_the_log_is_the_message_where_configured(clients, node):
    spec = pod_spec(*python("print('boom'); raise SystemExit(1)"))
    spec["containers"][0]["terminationMessagePolicy"] = "FallbackToLogsOnError"
    clients.core.create_namespaced_pod(NS, {"metadata": {"name": "a"}, "spec": spec})
    assert in_phase(clients, "a", "Failed").status.container_statuses[0].state.terminated.message == "boom\n"


def test_a_missing_command_exits_with_127(clients, node):
    start(clients, "a", "no-such-command")
    assert in_phase(clients, "a", "Failed").status.container_statuses[0].state.terminated.exit_code == 127


def test_an_ended_container_is_restarted_and_its_previous_log_readable(clients, kubernetes, node):
    """The first time at once, then after a while: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/."""
    counts = "import pathlib; f = pathlib.Path('n'); n = int(f.read_text() or 0) if f.exists() else 0"
    start(
        clients, "p", *python(f"{counts}; f.write_text(str(n + 1)); print('run', n); exit(3)"), restartPolicy="Always"
    )

    def waits():
        (status,) = read(clients, "p").status.container_statuses or (None,)
        return status and status.state.waiting and status

    status = until(waits, what="it waits for its second restart")
    assert status.state.waiting.reason == "CrashLoopBackOff"
    assert (status.restart_count, status.last_state.terminated.exit_code) == (1, 3)
    assert read(clients, "p").status.phase == "Running"
    assert clients.core.read_namespaced_pod_log("p", NS) == "run 1\n"
    assert clients.core.read_namespaced_pod_log("p", NS, previous=True) == "run 0\n"


def test_deletion_sends_sigterm_first(clients, kubernetes, node):
    start(clients, "a", *python(POLITE))
    until(lambda: "ready" in kubernetes.log(kubernetes.pods("a")[0]))
    seen = []
    before = clients.core.list_namespaced_pod(NS).metadata.resource_version  # the stream asks when it is first read
    stream = watch.Watch().stream(clients.core.list_namespaced_pod, NS, resource_version=before, timeout_seconds=60)
    clients.core.delete_namespaced_pod("a", NS)
    for event in stream:
        statuses = event["object"].status.container_statuses
        seen.append(
            (event["type"], statuses and statuses[0].state.terminated and statuses[0].state.terminated.exit_code)
        )
        if event["type"] == "DELETED":
            break
    assert seen[-1] == ("DELETED", 7)


def test_a_pod_that_ignores_sigterm_is_killed_with_all_its_processes(clients, kubernetes, node, tmp_path):
    start(clients, "a", *python(DEAF.format(tmp_path / "pids")))
    until(lambda: "ready" in kubernetes.log(kubernetes.pods("a")[0]))
    clients.core.delete_namespaced_pod("a", NS, grace_period_seconds=1)
    until(lambda: not kubernetes.pods())
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 2
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_killed_pod_has_137(clients, kubernetes, node):
    start(clients, "a", "sleep", "600")
    in_phase(clients, "a", "Running")
    kubernetes.kill(kubernetes.pods("a")[0])
    assert in_phase(clients, "a", "Failed").status.container_statuses[0].state.terminated.exit_code == 137


def test_children_of_a_containers_process_end_with_it(clients, kubernetes, node, tmp_path):
    text = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"
    start(clients, "a", *python(text))
    in_phase(clients, "a", "Succeeded")
    pid = clients.core.read_namespaced_pod_log("a", NS).strip()
    assert not Path(f"/proc/{pid}").exists()


def test_a_log_is_followed_to_its_end(clients, kubernetes, node):
    start(clients, "a", *python("import time\nfor i in range(5): print('line', i); time.sleep(0.02)"))
    in_phase(clients, "a", "Running", "Succeeded")
    lines = list(watch.Watch().stream(clients.core.read_namespaced_pod_log, "a", NS))
    assert lines == [f"line {i}" for i in range(5)]


def test_a_broken_log_is_resumed_by_time(clients, kubernetes, node):
    start(clients, "a", *python("for i in range(300): print('line', i)"))
    in_phase(clients, "a", "Succeeded")
    whole = clients.core.read_namespaced_pod_log("a", NS, timestamps=True).splitlines()
    stamps = [line.split()[0] for line in whole]
    assert stamps == sorted(set(stamps))
    assert all(len(stamp) == len("2026-01-01T00:00:00.000000000Z") for stamp in stamps)
    assert clients.core.read_namespaced_pod_log("a", NS, tail_lines=2) == "line 298\nline 299\n"
    assert clients.core.read_namespaced_pod_log("a", NS, limit_bytes=10) == "line 0\nlin"


def test_since_time_is_cut_to_whole_seconds():
    log = Log()
    log.lines = [(second * 10**9 + 500, b"x%d" % second) for second in range(3)]
    assert b"".join(log.read({"sinceTime": "1970-01-01T00:00:01.9Z"})) == b"x1\nx2\n"


def test_a_missing_log_gives_the_reason(clients, kubernetes):
    def message(name, **query):
        with pytest.raises(ApiException) as caught:
            clients.core.read_namespaced_pod_log(name, NS, **query)
        return json.loads(caught.value.body)["message"]

    assert message("a") == 'pods "a" not found'
    kubernetes.script("a", Waits("ImagePullBackOff", 'Back-off pulling image "training:1"'))
    start(clients, "a")
    assert message("a") == "pod a does not have a host assigned"
    kubernetes.add_node("node-a")
    until(lambda: kubernetes.pods("a")[0]["status"].get("containerStatuses"))
    assert message("a") == 'container "main" in pod "a" is waiting to start: ImagePullBackOff'
    assert message("a", previous=True) == 'previous terminated container "main" in pod "a" not found'


@pytest.mark.parametrize(
    ("script", "phase", "state"),
    [
        (Waits("ErrImagePull", "not found"), "Pending", ("waiting", "ErrImagePull")),
        (Exits(137, reason="OOMKilled"), "Failed", ("terminated", "OOMKilled")),
        (Exits(0), "Succeeded", ("terminated", "Completed")),
        (Sleeps(), "Running", ("running", None)),
    ],
)
def test_scripted_pods_end_as_told(clients, kubernetes, node, script, phase, state):
    kubernetes.script("a", script)
    start(clients, "a")
    until(lambda: read(clients, "a").status.container_statuses)
    found = in_phase(clients, "a", phase).status.container_statuses[0].state
    assert getattr(getattr(found, state[0]), "reason", None) == state[1]


def test_a_pod_is_evicted_at_once_or_later(clients, kubernetes, node):
    kubernetes.script("a", Evicted("no memory"))
    kubernetes.script("b", Sleeps())
    start(clients, "a")
    start(clients, "b")
    assert in_phase(clients, "a", "Failed").status.reason == "Evicted"
    in_phase(clients, "b", "Running")
    kubernetes.evict(kubernetes.pods("b")[0], "no disk")
    status = in_phase(clients, "b", "Failed").status
    assert (status.reason, status.message) == ("Evicted", "no disk")


def test_a_missing_config_map_keeps_a_pod_pending(clients, kubernetes, node):
    spec = pod_spec("sh", "-c", "echo $X")
    ref = {"configMapKeyRef": {"name": "settings", "key": "x"}}
    spec["containers"][0]["env"] = [{"name": "X", "valueFrom": ref}]
    clients.core.create_namespaced_pod(NS, {"metadata": {"name": "a"}, "spec": spec})
    until(lambda: read(clients, "a").status.container_statuses)
    waiting = read(clients, "a").status.container_statuses[0].state.waiting
    assert (waiting.reason, waiting.message) == ("CreateContainerConfigError", 'configmap "settings" not found')
    clients.core.create_namespaced_config_map(NS, config_map("settings", x="there"))
    in_phase(clients, "a", "Succeeded")
    assert clients.core.read_namespaced_pod_log("a", NS) == "there\n"


def test_an_unschedulable_pod_has_a_reason(kubernetes, clients):
    start(clients, "none")
    assert why_pending(kubernetes, "none") == "no nodes available to schedule pods"
    kubernetes.script("*", Sleeps())
    kubernetes.add_node("a", gpus=2)
    kubernetes.add_node("b", gpus=8, taints=({"key": "team", "value": "x", "effect": "NoSchedule"},))
    in_phase(clients, "none", "Running")
    start(clients, "big", gpus=4)
    assert why_pending(kubernetes, "big") == (
        "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint {team: x}. "
        "preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, "
        "1 Preemption is not helpful for scheduling."
    )
    start(clients, "elsewhere", nodeSelector={"kubernetes.io/hostname": "c"}, tolerations=[{"operator": "Exists"}])
    assert "2 node(s) didn't match Pod's node affinity/selector" in why_pending(kubernetes, "elsewhere")
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    pinned = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    start(clients, "pinned", gpus=4, affinity=pinned)
    why = "1 Insufficient nvidia.com/gpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption"
    assert why in why_pending(kubernetes, "pinned")
    volume = {"name": "d", "persistentVolumeClaim": {"claimName": "d"}}
    start(clients, "claim", volumes=[volume])
    assert 'persistentvolumeclaim "d" not found' in why_pending(kubernetes, "claim")
    start(clients, "fits", gpus=2)
    in_phase(clients, "fits", "Running")
    start(clients, "waits", gpus=1)
    assert "Insufficient nvidia.com/gpu" in why_pending(kubernetes, "waits")
    clients.core.delete_namespaced_pod("fits", NS)
    in_phase(clients, "waits", "Running")


def on_node(name: str) -> dict:
    """As DaemonSets pin their pods, and we ours."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


@pytest.mark.parametrize("place", [{"nodeSelector": {"kubernetes.io/hostname": "a"}}, {"affinity": on_node("a")}])
def test_devices_of_a_dev_pod_are_exclusive(kubernetes, clients, place):
    """kubernetes/kubernetes, pkg/scheduler/framework/plugins/noderesources/fit.go (fitsRequest): what all pods of the
    node ask for, against `status.allocatable`."""
    kubernetes.add_node("a", gpus=4)
    kubernetes.add_dev_pod("dev", "a", gpus=4)
    in_phase(clients, "dev", "Running")
    start(clients, "train", "true", gpus=1, **place)
    why = why_pending(kubernetes, "train")
    assert why == (
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: 0/1 nodes are available: "
        "1 No preemption victims found for incoming pod."
    )
    events = [(event["reason"], event["message"]) for event in kubernetes.all("events")]
    assert ("FailedScheduling", why) in events
    kubernetes.kill_container(kubernetes.pods("dev")[0])
    until(lambda: read(clients, "dev").status.container_statuses[0].restart_count == 1)
    assert read(clients, "train").status.phase == "Pending"
    clients.core.delete_namespaced_pod("dev", NS)
    in_phase(clients, "train", "Succeeded")


def test_a_kubelet_refuses_pods_beyond_its_capacity(kubernetes, clients):
    """Who names a node comes past the scheduler: pkg/kubelet/lifecycle/predicate.go, pkg/kubelet/kubelet.go
    (rejectPod)."""
    kubernetes.add_node("a", gpus=4)
    kubernetes.add_dev_pod("dev", "a", gpus=3)
    in_phase(clients, "dev", "Running")
    start(clients, "train", "true", gpus=2, nodeName="a")
    status = in_phase(clients, "train", "Failed").status
    assert (status.reason, status.message) == (
        "OutOfnvidia.com/gpu",
        "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 2, used: 3, capacity: 4",
    )
    start(clients, "small", "true", gpus=1, nodeName="a")
    in_phase(clients, "small", "Succeeded")


def test_containers_see_only_the_ids_of_their_devices(kubernetes, clients):
    """NVIDIA/k8s-device-plugin, internal/plugin/server.go (getAllocateResponse, deviceListStrategy `envvar`); they stay
    a container's own when it is begun again: pkg/kubelet/cm/devicemanager/manager.go (devicesToAllocate)."""
    kubernetes.add_node("a", gpus=4)
    show = "env | grep -E 'NVIDIA|CUDA|GPU' ; sleep 600"
    for name, gpus in (("two", 2), ("one", 1), ("none", 0)):
        start(clients, name, "sh", "-c", show, gpus=gpus, restartPolicy="Always")
        in_phase(clients, name, "Running")
    until(lambda: kubernetes.log(kubernetes.pods("one")[0]) and kubernetes.log(kubernetes.pods("two")[0]))
    logs = {name: kubernetes.log(kubernetes.pods(name)[0]) for name in ("two", "one", "none")}
    ids = {name: log.strip().removeprefix("NVIDIA_VISIBLE_DEVICES=").split(",") for name, log in logs.items()}
    assert [len(one) for one in (*ids["two"], *ids["one"])] == [len("GPU-") + 36] * 3
    assert not {*ids["two"]} & {*ids["one"]}
    assert logs["none"] == ""
    kubernetes.kill_container(kubernetes.pods("two")[0])
    until(lambda: read(clients, "two").status.container_statuses[0].restart_count == 1)
    until(lambda: kubernetes.log(kubernetes.pods("two")[0]) == logs["two"])


def test_pods_share_the_devices_of_one_claim(kubernetes, clients):
    kubernetes.install("dra")
    kubernetes.add_node("a", gpus=2)
    kubernetes.add_node("b", gpus=2)
    kubernetes.add_dev_pod("dev", "b", gpus=2, claim="dev-gpus")
    in_phase(clients, "dev", "Running")
    kubernetes.script("train", Sleeps())
    claims = [{"name": "gpus", "resourceClaimName": "dev-gpus"}]
    spec = pod_spec("sleep", "60", resourceClaims=claims)
    spec["containers"][0]["resources"] = {"claims": [{"name": "gpus"}]}
    clients.core.create_namespaced_pod(NS, {"metadata": {"name": "train"}, "spec": spec})
    assert in_phase(clients, "train", "Running").spec.node_name == "b"
    (claim,) = kubernetes.all("resourceclaims")
    assert [user["name"] for user in claim["status"]["reservedFor"]] == ["dev", "train"]


def test_pods_of_a_lost_node_stay_until_forced(kubernetes, clients, node):
    start(clients, "a", "sleep", "600")
    in_phase(clients, "a", "Running")
    kubernetes.lose_node("node-a")
    until(lambda: read(clients, "a").metadata.deletion_timestamp)
    found = clients.core.read_node("node-a")
    (ready,) = [condition for condition in found.status.conditions if condition.type == "Ready"]
    assert (ready.status, ready.reason) == ("Unknown", "NodeStatusUnknown")
    taints = {taint.key for taint in found.spec.taints}
    assert taints == {"node.kubernetes.io/unreachable"}
    lease = clients.coordination.read_namespaced_lease("node-a", "kube-node-lease")
    assert time.time() - lease.spec.renew_time.timestamp() > 50
    with pytest.raises(ApiException, match="i/o timeout"):
        clients.core.read_namespaced_pod_log("a", NS)
    clients.core.delete_namespaced_pod("a", NS, grace_period_seconds=0)
    assert kubernetes.pods() == []


def test_a_node_out_of_service_releases_its_pods(kubernetes, clients, node):
    start(clients, "a", "sleep", "600")
    in_phase(clients, "a", "Running")
    kubernetes.lose_node("node-a")
    until(lambda: read(clients, "a").metadata.deletion_timestamp)
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    clients.core.patch_node("node-a", {"spec": {"taints": [taint]}})
    until(lambda: not kubernetes.pods())


def test_a_returned_node_ends_pods_deleted_meanwhile(kubernetes, clients, node, tmp_path):
    start(clients, "a", *python(DEAF.format(tmp_path / "pids")))
    until(lambda: "ready" in kubernetes.log(kubernetes.pods("a")[0]))
    kubernetes.lose_node("node-a", processes_die=False)
    until(lambda: read(clients, "a").metadata.deletion_timestamp)
    clients.core.delete_namespaced_pod("a", NS, grace_period_seconds=0)
    pids = (tmp_path / "pids").read_text().split()
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    kubernetes.restore_node("node-a")
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    ready = [c.status for c in clients.core.read_node("node-a").status.conditions if c.type == "Ready"]
    assert ready == ["True"]


def test_log_readers_do_not_block_the_cluster(clients, kubernetes, node):
    start(clients, "a", *python(POLITE))
    until(lambda: "ready" in kubernetes.log(kubernetes.pods("a")[0]))
    lines: list[str] = []
    follow = watch.Watch().stream(clients.core.read_namespaced_pod_log, "a", NS)
    reader = threading.Thread(target=lambda: lines.extend(follow))
    reader.start()
    clients.core.delete_namespaced_pod("a", NS)
    reader.join(30)
    assert lines == ["ready", "leaving"]


POLITE = """
import signal, sys, time
def leave(*_):
    print("leaving")
    sys.exit(7)
signal.signal(signal.SIGTERM, leave)
print("ready")
time.sleep(600)
"""

DEAF = """
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
open({str!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
print("ready")
time.sleep(600)
""".replace("{str!r}", "'{}'")
