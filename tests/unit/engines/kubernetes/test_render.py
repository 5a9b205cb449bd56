"""What is sent, as the user previews it: valid to the letter, the same each time, and complete."""

import json
import os
from dataclasses import replace
from typing import Any

import pytest

from bench.preview import make_job as many
from fermi.engines.kubernetes import render
from fermi.jobs.spec import Entrypoint, JobSpec
from fermi.planning import plugins
from tests import goldens
from tests.fakes.kubernetes import resources, schemas

DATA = {"volume": {"persistentVolumeClaim": {"claimName": "fermi-data"}}}
ENGINES: dict[str, dict[str, Any]] = {
    "env-001": {"node": "gpu-1", "serviceAccount": "research"},
    "env-003": {"node": "gpu-3", "resourceClaims": ["llm-gpus"]},
    "env-005": {
        "node": "gpu-5",
        "resource": "example.com/gpu",
        "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}],
        "volumeMounts": [{"name": "home", "mountPath": "/home/research"}],
        "tolerations": [{"key": "team", "operator": "Exists", "effect": "NoSchedule"}],
    },
}


def document_job(**changes) -> JobSpec:
    """The document's three environments: 2 + 4 + 8 GPUs."""
    spec = goldens.job(*ENGINES, **changes)
    nodes = (replace(node, image="registry/training:2.4", engine=ENGINES[node.id]) for node in spec.nodes)
    return replace(spec, nodes=tuple(nodes), project="research")


def objects(spec: JobSpec, **connection) -> list[dict[str, Any]]:
    backend = plugins.get_backend(
        "kubernetes", {"data_dir": "/fermi", "namespace": "research", "data": DATA, **connection}
    )
    rendered = backend.render(spec, plugins.get_framework(spec.framework).plan(spec))
    assert rendered == backend.render(spec, plugins.get_framework(spec.framework).plan(spec))
    return [artifact.content for artifact in rendered.artifacts]


def jobs_of(spec: JobSpec, **connection) -> list[dict[str, Any]]:
    """Its Jobs, or its JobSet."""
    return [one for one in objects(spec, **connection) if one["kind"] in ("Job", "JobSet")]


CONNECTIONS = {
    "plain": {},
    "queue": {"queue": "gpus"},
    "limits": {"max_run_seconds": 3600, "requests": {"cpu": "2"}, "shm_gb": 16, "python": "/opt/python"},
    "patch": {"pod": {"priorityClassName": "high", "securityContext": {"runAsUser": None, "fsGroup": 2000}}},
    "jobset": {"jobset": True},
    "jobset-queue": {"jobset": True, "queue": "gpus"},
}


@pytest.mark.parametrize("framework", ["pytorch-ddp", "pytorch-fsdp", "deepspeed", "jax"])
@pytest.mark.parametrize("emulated", [True, False], ids=["emulated", "cuda"])
@pytest.mark.parametrize("connection", CONNECTIONS)
def test_every_object_validates_strictly(framework, emulated, connection):
    if connection.startswith("jobset") and not os.environ.get("FERMI_CRDS"):
        pytest.skip("FERMI_CRDS names no folder of definitions")
    hyperparameters = {} if framework == "deepspeed" else {"batchSize": 8, "totalSteps": 1000}
    spec = document_job(framework=framework, emulated=emulated, hyperparameters=hyperparameters)
    for obj in objects(spec, **CONNECTIONS[connection]):
        resource = resources.of_kind(obj["apiVersion"], obj["kind"])
        assert not schemas.problems(resource, obj)


def pod(obj) -> dict[str, Any]:
    return obj["spec"]["template"]["spec"]


def env(obj) -> dict[str, str]:
    return {variable["name"]: variable.get("value") for variable in pod(obj)["containers"][0]["env"]}


def test_ranks_are_in_the_pods_environment():
    jobs = jobs_of(document_job())
    assert [(env(job)["NODE_RANK"], env(job)["WORLD_SIZE"]) for job in jobs] == [("0", "14"), ("1", "14"), ("2", "14")]
    ranks = [[one["rank"] for one in json.loads(env(job)["FERMI_RANKS"])] for job in jobs]
    assert ranks == [[0, 1], [2, 3, 4, 5], [6, 7, 8, 9, 10, 11, 12, 13]]
    assert {env(job)["MASTER_ADDR"] for job in jobs} == {"node-0.task-golden-1.research.svc"}


def test_pods_are_pinned_to_their_machine_and_request_its_gpus():
    jobs = jobs_of(document_job(emulated=False))
    terms = [
        pod(job)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        for job in jobs
    ]
    assert [term[0]["matchFields"][0]["values"] for term in terms] == [["gpu-1"], ["gpu-3"], ["gpu-5"]]
    limits = [pod(job)["containers"][0]["resources"]["limits"] for job in jobs]
    assert limits[0]["nvidia.com/gpu"] == "2"
    assert limits[2]["example.com/gpu"] == "8"
    assert not any("gpu" in name for name in limits[1]), "its claim holds them already"
    assert pod(jobs[1])["resourceClaims"] == [{"name": "gpus-0", "resourceClaimName": "llm-gpus"}]


def test_a_pod_has_the_security_and_network_settings_of_its_environment():
    engine = {"node": "gpu-1", "imagePullPolicy": "Never", "runtimeClassName": "nvidia", "capabilities": ["IPC_LOCK"],
              "devices": {"rdma/hca": 1}}  # fmt: skip
    spec = document_job(emulated=False)
    made = objects(replace(spec, nodes=tuple(replace(node, engine=engine) for node in spec.nodes)))[2]
    assert not schemas.problems(resources.of_kind("batch/v1", "Job"), made)
    container = pod(made)["containers"][0]
    assert (pod(made)["runtimeClassName"], container["imagePullPolicy"]) == ("nvidia", "Never")
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert container["resources"]["requests"]["rdma/hca"] == container["resources"]["limits"]["rdma/hca"] == "1"


def test_emulated_gpus_request_only_cpus():
    for job in jobs_of(document_job()):
        assert pod(job)["containers"][0]["resources"]["requests"].keys() == {"cpu", "memory"}


def test_pods_are_never_restarted_singly_and_jobs_have_a_ttl():
    for job in jobs_of(document_job(), max_run_seconds=60):
        spec = job["spec"]
        assert (spec["backoffLimit"], spec["podReplacementPolicy"]) == (0, "Failed")
        assert (spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (60, 86_400)
        assert pod(job)["restartPolicy"] == "Never"


def test_pods_have_our_variables_and_no_secret():
    config, _, job, *_, modules = objects(document_job())
    sources = [one["configMap"] for one in pod(job)["volumes"][0]["projected"]["sources"]]
    assert [one["name"] for one in sources] == [one["metadata"]["name"] for one in (config, modules)]
    paths = {item["path"] for one in sources for item in one["items"]}
    assert {
        "fermi/runner/pod.py",
        "fermi/runner/node.py",
        "fermi/runner/barrier.py",
        "fermi/train/train_ddp.py",
    } <= paths
    assert {path.replace("/", "__") for path in paths} == config["data"].keys() | modules["data"].keys()
    own_script = objects(replace(document_job(), entrypoint=Entrypoint("run.py")))[-1]
    assert not any("train" in key for key in own_script["data"])
    assert len(json.dumps(modules)) < 1 << 20
    assert len(json.dumps(config)) < 20_000


def test_equal_modules_share_a_config_map():
    first, second = (objects(replace(document_job(), attempt=number)) for number in (1, 2))
    assert first[0] != second[0]
    assert first[-1] == second[-1]
    assert first[-1]["immutable"] is True
    assert first[0]["metadata"]["labels"]["fermi.io/modules"] == first[-1]["metadata"]["labels"]["fermi.io/modules"]
    other = objects(replace(document_job(), entrypoint=Entrypoint("run.py")))[-1]
    assert other["metadata"]["name"] != first[-1]["metadata"]["name"]


def test_queued_jobs_are_created_suspended():
    for job in jobs_of(document_job(), queue="gpus"):
        assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
        assert job["spec"]["suspend"] is True
    [jobset] = jobs_of(document_job(), queue="gpus", jobset=True)
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert jobset["spec"]["suspend"] is True
    assert not any("suspend" in one["template"]["spec"] for one in jobset["spec"]["replicatedJobs"])


def test_variables_of_users_are_not_expanded():
    job = objects(replace(document_job(), env={"GREETING": "$(HOSTNAME) $HOME"}))[2]
    assert env(job)["GREETING"] == "$$(HOSTNAME) $HOME"


def test_a_patch_merges_by_name_and_replaces_the_rest():
    patch = {
        "containers": [{"name": "node", "volumeMounts": [{"name": "tools", "mountPath": "/tools"}]}],
        "volumes": [{"name": "tools", "hostPath": {"path": "/opt/tools"}}],
        "securityContext": None,
    }
    before, after = pod(objects(document_job())[2]), pod(objects(document_job(), pod=patch)[2])
    assert "securityContext" not in after
    assert after["volumes"] == [*before["volumes"], {"name": "tools", "hostPath": {"path": "/opt/tools"}}]
    assert len(after["containers"]) == 1
    mounts = after["containers"][0]["volumeMounts"]
    assert mounts == [*before["containers"][0]["volumeMounts"], {"name": "tools", "mountPath": "/tools"}]
    assert render.apply_merge_patch({"a": [1], "b": 2}, {"a": [3], "b": None}) == {"a": [3]}


def test_names_are_dns_labels_even_for_many_nodes():

    spec = replace(many(4096), task_id="task-7kq2m9x4td", attempt=12)
    for obj in objects(spec):
        assert len(obj["metadata"]["name"]) <= 63 - len("-abcde")
