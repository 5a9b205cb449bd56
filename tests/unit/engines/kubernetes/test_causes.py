"""Each thing that Kubernetes can say of an attempt, provoked, and the reason that it becomes."""

import json
import os
import socket
import sys
import time

import pytest

from apps.training.states.reasons import CAUSES
from fermi import messages
from fermi.engines.kubernetes import causes
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Phase
from fermi.planning import plugins
from tests.fakes.kubernetes import Exits, Sleeps, Waits, conditions, resources
from tests.unit.engines.kubernetes.conftest import POD, handle, job, observe_one, rendered, submit, until_seen

KNOWN = CAUSES | plugins.get_causes("kubernetes")


def failed(backend, spec):
    seen = until_seen(backend, submit(backend, spec), lambda seen: seen.phase is Phase.FAILED)
    return checked(seen.cause)


def waiting(backend, spec):
    return checked(until_seen(backend, submit(backend, spec), lambda seen: seen.waiting).waiting)


def checked(cause):
    """Every cause has a text, in both languages, that its parameters fill."""
    assert cause.code in KNOWN
    for lang in messages.LANGUAGES:
        assert messages.render_text(cause.code, lang, **cause.params)
    assert cause.params["evidence"]
    return cause


def test_insufficient_gpus_are_waited_for(lab, backend):
    lab.cluster.add_dev_pod("dev-a", "machine-a", gpus=8)
    cause = waiting(backend, job(4, emulated=False))
    assert cause.code == "GPU_INSUFFICIENT"
    assert cause.params["node"] == "dev-a"
    assert "Insufficient nvidia.com/gpu" in cause.params["evidence"]


def test_emulated_gpus_request_none(lab, backend):
    lab.cluster.add_dev_pod("dev-a", "machine-a", gpus=8)
    spec = job(4)
    until_seen(backend, submit(backend, spec), lambda seen: seen.phase is Phase.SUCCEEDED)


def test_insufficient_memory_is_waited_for(lab):
    cause = waiting(lab.backend(requests={"memory": "9000Gi"}, limits={"memory": "9000Gi"}), job(1))
    assert cause.code == "RESOURCES_INSUFFICIENT"


def test_a_taint_is_waited_for(lab, backend):
    taint = {"key": "maintenance", "value": "yes", "effect": "NoSchedule"}
    lab.cluster.add_node("machine-t", taints=(taint,))
    assert waiting(backend, job(1, engine={"node": "machine-t"})).code == "NODE_TAINTED"


def test_a_missing_machine_fails_at_once(backend):
    cause = failed(backend, job(1, engine={"node": "machine-z"}))
    assert cause.code == "NODE_MISSING"
    assert not KNOWN[cause.code].retry


def test_a_missing_volume_claim_fails_at_once(backend):
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}
    mount = {"name": "data", "mountPath": "/nowhere"}
    cause = failed(backend, job(1, engine={"volumes": [volume], "volumeMounts": [mount]}))
    assert cause.code == "VOLUME_UNAVAILABLE"
    assert "nowhere" in cause.params["evidence"]


def test_a_volume_that_cannot_be_mounted_yet_is_waited_for(backend):
    volume = {"name": "settings", "configMap": {"name": "nothing"}}
    mount = {"name": "settings", "mountPath": "/settings"}
    cause = waiting(backend, job(1, engine={"volumes": [volume], "volumeMounts": [mount]}))
    assert cause.code == "VOLUME_UNAVAILABLE"


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ("FailedPrepareDynamicResources", "DEVICES_UNAVAILABLE"),
        ("FailedCreatePodSandBox", "POD_NOT_SET_UP"),
        ("NetworkNotReady", "POD_NOT_SET_UP"),
        ("FailedMapVolume", "VOLUME_UNAVAILABLE"),
    ],
)
def test_a_container_creation_error_of_a_machine_is_reported(lab, backend, event, code):
    lab.cluster.script(POD, Waits("ContainerCreating", "rpc error: code = Unavailable", event))
    cause = waiting(backend, job(1))
    assert (cause.code, cause.params["evidence"]) == (code, f"{event}: rpc error: code = Unavailable")


def test_the_newest_of_several_events_counts():
    said = {
        reason: {"reason": reason, "message": reason.lower(), "lastTimestamp": at}
        for reason, at in (
            ("FailedMount", "2026-01-01T10:00:00Z"),
            ("FailedCreatePodSandBox", "2026-01-01T10:00:09Z"),
            ("NetworkNotReady", "2026-01-01T10:00:01Z"),
        )
    }
    found = causes.explain_pending({"metadata": {"name": "p"}, "spec": {}, "status": {}}, said)
    assert found
    assert (found[0].code, found[1]) == ("POD_NOT_SET_UP", False)


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff"])
def test_a_missing_image_fails_at_once(lab, backend, reason):
    lab.cluster.script(POD, Waits(reason, 'failed to resolve reference "training:1": not found'))
    assert failed(backend, job(1)).code == "IMAGE_UNAVAILABLE"


def test_an_unreachable_image_registry_is_waited_for(lab, backend):
    lab.cluster.script(POD, Waits("ImagePullBackOff", 'Back-off pulling image "training:1": i/o timeout'))
    assert waiting(backend, job(1)).code == "IMAGE_UNAVAILABLE"


def test_a_container_config_error_fails_at_once(lab, backend):
    lab.cluster.script(POD, Waits("CreateContainerConfigError", 'secret "token" not found'))
    cause = failed(backend, job(1))
    assert cause.code == "CONTAINER_INVALID"
    assert "token" in cause.params["evidence"]


def test_out_of_memory_names_the_pod_and_precedes_errors_of_peers(lab, backend):
    lab.cluster.script("task-x-1-node-0*", Exits(1, after=0.3))
    lab.cluster.script("task-x-1-node-1*", Exits(137, after=0.3, reason="OOMKilled"))
    one = submit(backend, job(1, 1))
    seen = until_seen(backend, one, lambda seen: seen.cause and seen.cause.code == "OUT_OF_MEMORY")
    assert checked(seen.cause).params["node"] == "dev-b"


@pytest.mark.parametrize("code", [143, 137])
def test_a_pod_that_is_killed_after_its_rank_had_ended_explains_no_failure_of_others(lab, backend, code):
    now = time.time()
    rank_0, rank_1 = {"ranks": [[0, 0, now]]}, {"rank": 1, "ranks": [[1, 7, now]]}
    lab.cluster.script("task-x-1-node-0*", Exits(code, lines=(json.dumps(rank_0),)))
    lab.cluster.script("task-x-1-node-1*", Exits(7, after=0.3, lines=(json.dumps(rank_1),)))
    one = submit(backend, job(1, 1))
    seen = until_seen(backend, one, lambda seen: seen.cause and seen.cause.code == "RANK_FAILED")
    assert (seen.cause.params["rank"], seen.cause.params["exitCode"]) == (1, 7)


def test_a_pod_that_is_killed_after_its_rank_had_ended_is_no_failed_rank(lab, backend):
    lab.cluster.script(POD, Exits(137, lines=(json.dumps({"ranks": [[0, 0, time.time()]]}),)))
    assert failed(backend, job(1)).code == "POD_DELETED"


def test_an_evicted_pod_is_named_with_the_kubelets_message(lab, backend):
    lab.cluster.script(POD, Sleeps())
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    lab.cluster.evict(lab.cluster.pods(POD)[0])
    cause = checked(until_seen(backend, one, lambda seen: seen.phase is Phase.FAILED).cause)
    assert cause.code == "EVICTED"
    assert "low on resource" in cause.params["evidence"]


def test_a_deleted_pod_is_reported(lab, backend):
    lab.cluster.script(POD, Sleeps(deaf=True))
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    pod = lab.cluster.pods(POD)[0]
    lab.backend().client.delete("Pod", pod["metadata"]["name"], grace=60)
    assert checked(until_seen(backend, one, lambda seen: seen.phase is Phase.FAILED).cause).code == "POD_DELETED"


def test_a_failed_rank_is_named_with_its_last_lines(lab, backend):
    script = "import os, sys; print('fine'); sys.exit('no such layer') if os.environ['RANK'] == '2' else None"
    cause = failed(backend, job(1, 2, script=script))
    assert cause.code == "RANK_FAILED"
    assert (cause.params["rank"], cause.params["node"], cause.params["exitCode"]) == (2, "dev-b", 1)
    assert cause.params["evidence"].endswith("no such layer")
    assert cause.params["pod"].startswith("task-x-1-node-1-")


def test_a_missing_interpreter_is_no_ranks_failure(lab):
    cause = failed(lab.backend(python="/nowhere/python3"), job(1))
    assert cause.code in ("CONTAINER_INVALID", "RANK_FAILED")
    assert "nowhere" in cause.params["evidence"]


def test_a_quota_is_waited_for(lab, backend):
    lab.cluster.add_quota("small", {"count/pods": "0"})
    cause = waiting(backend, job(1))
    assert cause.code == "QUOTA_EXCEEDED"
    assert "exceeded quota" in cause.params["evidence"]


def test_a_webhook_that_refuses_pods_fails_at_once(lab, backend):
    lab.cluster.admission.deny("pods", message="images must come from our registry")
    cause = failed(backend, job(1))
    assert cause.code == "ADMISSION_DENIED"
    assert "our registry" in cause.params["evidence"]


@pytest.mark.parametrize("policy", [False, True], ids=["webhook", "policy"])
@pytest.mark.parametrize("resource", ["services", "jobs", "pods"])
def test_any_admission_refusal_is_denied_and_not_rejected(lab, backend, resource, policy):
    lab.cluster.admission.deny(resource, message="name a cost centre", policy=policy)
    if resource == "pods":  # the Job controller is refused
        cause = failed(backend, job(1))
        assert (cause.code, "cost centre" in cause.params["evidence"]) == ("ADMISSION_DENIED", True)
        return
    with pytest.raises(BackendError) as raised:
        submit(backend, job(1))
    assert (raised.value.code, raised.value.permanent) == ("ADMISSION_DENIED", True)
    assert "cost centre" in raised.value.params["evidence"]


def test_a_missing_service_account_fails_at_once(backend):
    assert failed(backend, job(1, engine={"serviceAccount": "nobody"})).code == "ADMISSION_DENIED"


def test_a_failed_rendezvous_names_the_missing_node(lab):
    impatient = {"containers": [{"name": "node", "env": [{"name": "FERMI_PATIENCE_SECONDS", "value": "0.5"}]}]}
    lab.cluster.script("task-x-1-node-1*", Sleeps())
    cause = failed(lab.backend(pod=impatient), job(1, 1))
    assert cause.code == "NODES_MISSING"
    assert cause.params["evidence"] == "1"


def test_a_busy_port_on_the_head_names_its_holder(lab, backend):
    """As on the machine's own network."""
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        cause = failed(backend, job(1, 1, master_port=port))
    assert (cause.code, cause.params["port"]) == ("MASTER_PORT_TAKEN", port)
    assert cause.params["holder"].startswith(f"pid {os.getpid()} (")


def test_a_full_disk_found_by_a_runner_is_the_cause(lab, backend):
    """The runner's own words in the termination message, as `fermi.runner.pod` writes them."""
    about = {"path": "/fermi/checkpoints", "free": 0, "total": 1 << 30, "rank": 1}
    said = {
        "rank": 1,
        "ranks": [[0, None, None], [1, 5, 100.0]],
        "cause": "DISK_FULL",
        "about": about,
        "tail": "ENOSPC",
    }
    script = "import json, os; json.dump({!r}, open(os.environ['FERMI_TERMINATION_LOG'], 'w')); os._exit(5)"
    order = rendered(backend, job(2))
    [pod] = [one for one in order.artifacts if one.kind == "Job"]
    [container] = pod.content["spec"]["template"]["spec"]["containers"]
    container["command"], container["args"] = [sys.executable, "-c", script.format(said)], []
    backend.submit(order)
    cause = checked(until_seen(backend, handle(job(2)), lambda seen: seen.phase is Phase.FAILED).cause)
    assert (cause.code, cause.params["path"], cause.params["rank"]) == ("DISK_FULL", "/fermi/checkpoints", 1)


def test_a_job_over_its_time_limit_is_reported(lab):
    lab.cluster.script(POD, Sleeps())
    seen = until_seen(
        backend := lab.backend(max_run_seconds=1), submit(backend, job(1)), lambda seen: seen.phase is Phase.FAILED
    )
    assert seen.cause.code == "RUN_TIMEOUT"


def test_a_lost_machine_is_named(lab, backend):
    lab.cluster.script(POD, Sleeps())
    one = submit(backend, job(1))
    until_seen(backend, one, lambda seen: seen.phase is Phase.RUNNING)
    lab.cluster.lose_node("machine-a")
    pod = lab.cluster.pods(POD)[0]

    def evict_by_taint(obj):
        conditions.set_condition(
            obj, "DisruptionTarget", True, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute"
        )

    lab.cluster.api.change(resources.PODS, pod, evict_by_taint)
    lab.cluster.api.delete(resources.PODS, lab.cluster.namespace, pod["metadata"]["name"], {})
    cause = checked(until_seen(backend, one, lambda seen: seen.phase is Phase.FAILED).cause)
    assert cause.code == "NODE_LOST"
    assert observe_one(backend, one).left is True
