"""The main job on Kubernetes: the real platform, and a cluster that really runs its pods' commands on this machine."""

from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from fermi.engines.kubernetes import names
from fermi.engines.kubernetes.permissions import RULES
from tests import packages
from tests.e2e.kubernetes_platform import GPUS, MOUNT, SMALL, Lab
from tests.fakes.kubernetes import FakeCluster
from tests.fakes.kubernetes.resources import CONFIGMAPS, PODS
from tests.platform_process import Running
from tests.polling import until

pytestmark = [pytest.mark.e2e]


@pytest.fixture(scope="module")
def lab(platform: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    cluster = FakeCluster(tmp_path_factory.mktemp("kubernetes")).start()
    try:
        yield Lab(platform, cluster)
    finally:
        platform.close()
        cluster.close()
    assert not cluster.errors, "\n".join(cluster.errors)


def test_the_cluster_passes_its_check(lab: Lab) -> None:
    report = lab.send("POST", f"/clusters/{lab.id}/check")
    assert report["fit"], report
    assert {one["code"] for one in report["findings"] if one["level"] == "warn"} == {
        "GPUS_NOT_FOUND", "INSIDE_NOT_RUNNING", "VOLUME_HOLDS_SECRETS",  # its dev pods have no processes
    }  # fmt: skip
    assert "VOLUME_USABLE" in {one["code"] for one in report["findings"]}


def test_dev_pods_are_environments(lab: Lab) -> None:
    found = lab.platform.get(f"/dev-environments/{lab.environments['nlp-research']}")
    assert (found["backend"], found["gpuCount"], found["gpuType"], found["emulated"]) == ("kubernetes", 8, "A100", True)
    assert (found["zone"]["name"], found["cpuCores"], found["memoryGb"]) == ("zone-2", 64, 64)
    assert found["engine"]["node"] == "machine-2"
    assert found["uptimeSeconds"] is not None


@pytest.mark.parametrize("framework", ["deepspeed", "ddp"])
def test_the_preview_of_the_documents_request_shows_objects_that_validate_strictly(lab: Lab, framework: str) -> None:
    request = lab.request()
    request["distributedConfig"] |= {
        "framework": framework,
        **({"strategy": {"dataParallel": 2, "pipelineParallel": 4, "tensorParallel": 8}} if framework != "ddp" else {}),
    }
    preview = lab.send("POST", "/training-tasks/preview", **request)
    assert preview["problems"] == []
    assert preview["worldSize"] == 14
    objects = [yaml.safe_load(one["content"]) for one in preview["artifacts"]]
    for one in objects:
        for version in ("1.30", "1.34"):
            kubernetes_validate.validate(one, version, strict=True)
    assert sorted(one["kind"] for one in objects) == ["ConfigMap", "ConfigMap", "Job", "Job", "Job", "Service"]
    jobs = [one["spec"]["template"]["spec"] for one in objects if one["kind"] == "Job"]
    mounts = [one for pod in jobs for one in pod["containers"][0]["volumeMounts"] if one["name"] == "fermi-data"]
    folders = {one["subPath"].partition("/")[0] for one in mounts}
    assert folders == {"datasets", "checkpoints", "outputs", "files", "homes"}, "never the whole of it"
    [cache] = {one["subPath"] for one in mounts if one["subPath"].startswith("homes/")}
    assert cache.endswith("/.cache"), "of a project's HOME the caches alone"
    assert all(one["mountPath"] == f"{MOUNT}/{one['subPath']}" for one in mounts)
    assert any(f"{MOUNT}/checkpoints/" in one["content"] for one in preview["artifacts"])


@pytest.mark.timeout(900)
def test_the_documents_three_environments_train_and_no_object_is_left(lab: Lab) -> None:
    task_id = lab.send("POST", "/training-tasks", **lab.request(hyperparameters=SMALL))["taskId"]
    task = lab.platform.until_state(task_id, "succeeded", seconds=800)
    assert (task["worldSize"], task["step"]) == (14, 5)
    assert [rank["state"] for rank in task["ranks"]] == ["exited"] * 14
    for rank in (0, 2, 13):
        assert f"[Rank {rank}] World Size: 14" in lab.platform.log(task_id, rank)
    steps = [point["step"] for point in lab.platform.items(task_id, "metrics", rank=0) if "loss" in point["values"]]
    assert steps == sorted(set(steps))
    lab.send("DELETE", f"/training-tasks/{task_id}")
    until(lambda: not lab.left(task_id), what="nothing is left of it")


@pytest.mark.timeout(900)
def test_a_killed_pod_restarts_the_gang_from_its_checkpoint_and_stop_ends_it(lab: Lab) -> None:
    hyperparameters = {**SMALL, "totalSteps": 2000, "checkpointEvery": 5, "stepDelay": 0.05, "evalEvery": 1000}
    first = lab.environments["pytorch-dev"]
    request = lab.platform.request([first], hyperparameters=hyperparameters)
    task_id = lab.send("POST", "/training-tasks", **request)["taskId"]
    saved = until(lambda: lab.platform.items(task_id, "checkpoints"), seconds=180, what="a checkpoint")
    assert all(one["path"].startswith(f"{lab.platform.data}/checkpoints/{task_id}/") for one in saved)
    [pod] = lab.pods(task_id)
    lab.cluster.kill(pod)
    until(lambda: lab.platform.task(task_id)["attempt"] == 2, seconds=180, what="the next attempt")
    resumed = until(
        lambda: [e for e in lab.platform.items(task_id, "events", pageSize=200) if e["code"] == "SCRIPT_RESUMED"],
        seconds=180, what="it goes on from the checkpoint",
    )  # fmt: skip
    assert resumed[0]["attempt"] == 2
    assert resumed[0]["params"]["step"] >= 5
    assert lab.platform.log(task_id, 0, attempt=1), "the log outlives its pod"
    lab.send("POST", f"/training-tasks/{task_id}/stop")
    task = lab.platform.until_state(task_id, "stopped", seconds=180)
    assert [attempt["outcome"]["code"] for attempt in task["attempts"]][1] == "STOPPED_BY_USER"
    until(lambda: all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in lab.pods(task_id)), what="no pod")


def test_the_log_is_complete_after_watcher_and_connections_were_killed(lab: Lab) -> None:
    script = lab.platform.data / "workspace" / "count.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(
        "import os, time\nfrom pathlib import Path\n"
        "for number in range(400):\n    print('line', number, flush=True)\n    time.sleep(0.01)\n"
    )
    first = lab.environments["pytorch-dev"]
    request = lab.platform.request([first], entrypoint={"script": str(script), "args": []})
    task_id = lab.send("POST", "/training-tasks", **request)["taskId"]
    until(lambda: "line 50" in lab.platform.log(task_id), seconds=120, what="it prints")
    lab.platform.kill("watch")
    lab.cluster.break_connections()
    lab.platform.until_state(task_id, "succeeded", seconds=180)
    for rank in (0, 1):
        lines = [line for line in lab.platform.log(task_id, rank).splitlines() if line.startswith("line ")]
        assert lines == [f"line {number}" for number in range(400)]


@pytest.mark.timeout(600)
def test_preparation_of_pods_is_shown_and_a_failing_one_named(lab: Lab, tmp_path: Path) -> None:
    names_of_both = ["pytorch-dev", "llm-training"]
    both, gate = [lab.environments[name] for name in names_of_both], tmp_path / "gate"
    task_id = packages.submit(lab.platform, tmp_path, packages.tree(gate), both)
    seen = packages.until_prepared_on(lab.platform, task_id, *names_of_both)
    assert (seen["status"], seen["reason"]["code"]) == ("starting", "CODE_PACKAGES_PREPARING")
    gate.touch()
    lab.platform.until_state(task_id, "succeeded", seconds=180)
    for rank in range(6):
        assert lab.platform.log(task_id, rank).splitlines()[-1] == "trains with toy"

    broken = packages.submit(lab.platform, tmp_path, packages.tree(gate, broken=1), both)
    reason = lab.platform.until_state(broken, "failed", seconds=180)["reason"]
    assert reason["code"] == "CODE_PACKAGES_FAILED", reason
    assert "packages of requirements.txt could not be prepared on llm-training" in reason["message"]
    assert "there is no compiler here" in reason["message"]


def test_unknown_objects_are_removed(lab: Lab) -> None:
    labels = {names.MANAGED_BY: "fermi", names.TASK: "task-unknown", names.ATTEMPT: "3"}
    lab.cluster.api.create(CONFIGMAPS, "fermi", {"metadata": {"name": "task-unknown-3", "labels": labels}, "data": {}})
    lab.platform.kill("worker")  # the next one sweeps when it begins
    until(lambda: not lab.left("task-unknown"), seconds=120, what="the orphan is gone")


def test_a_deleted_pod_stops_its_environment_and_a_task_waits_for_it(lab: Lab) -> None:
    name = "llm-training"
    key = lab.environments[name]
    lab.cluster.api.delete(PODS, "fermi", name, {"gracePeriodSeconds": 0})
    until(lambda: lab.platform.get(f"/dev-environments/{key}")["status"] == "stopped", what="it is seen to be gone")
    answer = lab.platform.api.post("/training-tasks", json=lab.platform.request([key]))
    assert answer.json()["errors"][0]["error"] == "ENVIRONMENT_NOT_RUNNING"
    lab.add(name, 1, GPUS[name])
    until(lambda: lab.platform.get(f"/dev-environments/{key}")["status"] == "running", what="it is back, the same one")


def test_every_request_is_covered_by_the_documented_permissions(lab: Lab) -> None:
    """The last test: it looks at what all the others did."""
    allowed = {(verb, rule.resource) for rule in RULES for verb in rule.verbs}
    everybody_may = {("create", "selfsubjectaccessreviews"), ("get", "namespaces")}
    calls = [call for call in lab.cluster.calls(user_agent="fermi") if call.resource]
    asked = {(call.verb, "/".join(filter(None, [call.resource, call.subresource]))) for call in calls}
    assert ("create", "jobs") in asked
    assert asked <= allowed | everybody_may
