"""Rules about what a task is made from: whose data, which environments, and what is only a warning."""

from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import Membership, Project, Role
from apps.catalog.models import Dataset, DatasetVersion, Model, VersionStatus
from apps.clusters import leases
from apps.clusters.models import Cluster, DevEnvironment, Lease
from apps.common.clock import now
from apps.training.core import placement
from apps.training.models import Checkpoint, Task
from apps.training.reconcile import reconciler
from apps.training.states import TaskState
from tests.api.conftest import Api
from tests.api.test_tasks_create import DOCUMENT, changed

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]

SINGLE = changed(distributedConfig=None, environmentIds=["env-001"])


def codes(api: Api, request: dict[str, Any]) -> list[str]:
    return sorted(warning["code"] for warning in api.post("/training-tasks", request).data["warnings"])


def test_a_node_named_twice_is_accepted_as_in_the_contract(colleague: Api) -> None:
    both = changed(environmentIds=["env-001"])
    assert colleague.post("/training-tasks", both).data["distributedInfo"]["nodeCount"] == 3


def test_a_config_without_nodes_uses_the_environments_of_the_request(colleague: Api) -> None:
    beside = changed(distributedConfig__nodeIds=None, environmentIds=["env-003", "env-001"])
    created = colleague.post("/training-tasks", beside).data
    assert (created["distributedInfo"]["nodeCount"], created["distributedInfo"]["masterNode"]) == (2, "env-001")


def test_a_disabled_config_is_ignored(colleague: Api) -> None:
    single = changed(distributedConfig__enabled=False, distributedConfig__framework="none", environmentIds=["env-002"])
    assert colleague.post("/training-tasks", single).data["distributedInfo"]["masterNode"] == "env-002"


def test_a_node_without_a_gpu_runs_one_process(colleague: Api) -> None:
    DevEnvironment.objects.filter(pk="env-001").update(gpu_count=0, gpu_type="")
    created = colleague.post("/training-tasks", SINGLE).data
    assert (created["distributedInfo"]["totalGpus"], created["distributedInfo"]["worldSize"]) == (0, 1)


def test_model_defaults_apply_where_the_request_is_silent(colleague: Api) -> None:
    task_id = colleague.post("/training-tasks", {**SINGLE, "hyperparameters": {"totalSteps": 7}}).data["taskId"]
    hyperparameters = Task.objects.get(pk=task_id).spec["hyperparameters"]
    assert (hyperparameters["totalSteps"], hyperparameters["batchSize"]) == (7, 8)
    assert colleague.get(f"/training-tasks/{task_id}").data["totalSteps"] == 7


def test_environments_of_two_clusters_are_refused_together(colleague: Api) -> None:
    other = Cluster.objects.create(name="other", backend="local")
    DevEnvironment.objects.filter(pk="env-005").update(cluster=other)
    assert colleague.post("/training-tasks", DOCUMENT).problems == {"distributedConfig.nodeIds.2": "CLUSTERS_DIFFER"}


def test_datasets_and_models_of_other_projects_are_refused(colleague: Api, other_project: Project) -> None:
    """Not even by somebody who is in both projects: the others who will read the task are not."""
    Membership.objects.create(project=other_project, user=colleague.user, role=Role.MEMBER)
    Dataset.objects.update(project=other_project)
    Model.objects.update(project=other_project)
    assert colleague.post("/training-tasks", DOCUMENT).problems == {
        "datasetId": "DATASET_UNKNOWN",
        "modelId": "MODEL_UNKNOWN",
    }


def test_a_dataset_in_preparation_is_waited_for_and_a_failed_one_refused(colleague: Api) -> None:
    DatasetVersion.objects.update(status=VersionStatus.PREPARING, train_path="", valid_path="")
    assert colleague.post("/training-tasks", SINGLE).status == 201
    DatasetVersion.objects.update(status=VersionStatus.FAILED, error={"code": "DATA_EMPTY", "path": "/x"})
    assert colleague.post("/training-tasks", SINGLE).problems == {"datasetVersionId": "DATASET_VERSION_FAILED"}


def test_held_environments_give_a_warning(colleague: Api) -> None:
    leases.acquire_leases(["env-001"], "task-elsewhere")
    warnings = {warning["code"]: warning for warning in colleague.post("/training-tasks", SINGLE).data["warnings"]}
    assert "task-elsewhere" in warnings["ENVIRONMENTS_BUSY"]["message"]


def test_a_holder_is_named_only_to_its_own_project(colleague: Api, other_project: Project) -> None:
    holder = colleague.post("/training-tasks", {**SINGLE, "taskName": "holds-it"}).data["taskId"]
    leases.acquire_leases(["env-001"], holder)

    def read_warning() -> str:
        warnings = colleague.post("/training-tasks/preview", SINGLE).data["warnings"]
        return next(str(warning["message"]) for warning in warnings if warning["code"] == "ENVIRONMENTS_BUSY")

    def waits_for() -> str:
        task_id = colleague.post("/training-tasks", SINGLE).data["taskId"]
        reconciler.reconcile_tasks(task_id)
        return str(colleague.get(f"/training-tasks/{task_id}").data["reason"]["message"])

    assert ("holds-it" in read_warning(), "holds-it" in waits_for(), holder in read_warning()) == (True, True, False)
    Task.objects.filter(pk=holder).update(project=other_project)
    assert ("holds-it" in read_warning(), "holds-it" in waits_for(), holder in read_warning()) == (False, False, True)
    assert [one["taskName"] for one in colleague.get("/training-tasks", task=[holder]).data["items"]] == []


def test_different_gpus_and_versions_give_warnings(colleague: Api) -> None:
    DevEnvironment.objects.filter(pk="env-001").update(versions={"torch": "2.1"})
    two = changed(distributedConfig__nodeIds=["env-001", "env-002"], distributedConfig__strategy=None)
    assert codes(colleague, two) == ["EMULATED_GPUS", "GPU_TYPES_DIFFER", "VERSIONS_DIFFER"]


def test_a_strategy_that_can_run_gives_no_warning(colleague: Api) -> None:
    assert "STRATEGY_NOT_RENDERED" not in codes(colleague, changed(distributedConfig__strategy={"dataParallel": 14}))


def test_a_framework_is_found_under_each_of_its_names(colleague: Api) -> None:
    for name in ("ddp", "pytorch-ddp"):
        created = colleague.post("/training-tasks", changed(distributedConfig__framework=name)).data
        assert created["distributedInfo"]["framework"] == "pytorch-ddp"
    assert [colleague.get("/training-tasks", framework=name).data["total"] for name in ("ddp", "pytorch-ddp")] == [2, 2]


def test_validation_queries_do_not_grow_with_environments(
    colleague: Api, project: Project, cluster: Cluster, django_assert_max_num_queries: Any
) -> None:
    zone = DevEnvironment.objects.get(pk="env-001").zone
    ids = [f"env-big-{n}" for n in range(64)]
    DevEnvironment.objects.bulk_create(
        DevEnvironment(pk=key, name=key, project=project, cluster=cluster, zone=zone, gpu_count=8) for key in ids
    )
    big = changed(
        distributedConfig__nodeIds=ids, distributedConfig__masterNode=ids[0], distributedConfig__strategy=None
    )
    assert colleague.post("/training-tasks", SINGLE).status == 201, "a process's first request fills its caches"
    with django_assert_max_num_queries(27):
        assert colleague.post("/training-tasks", big).data["distributedInfo"]["worldSize"] == 512
    with django_assert_max_num_queries(15):
        assert len(colleague.post("/training-tasks/preview", big).data["ranks"]) == 512


def test_a_retry_resumes_from_the_newest_existing_checkpoint(colleague: Api, settings: Any) -> None:
    task = Task.objects.get(pk=colleague.post("/training-tasks", SINGLE).data["taskId"])
    Task.objects.update(state=TaskState.FAILED, due_at=None, ended_at=now())
    kept = Path(settings.DATA_DIR, "checkpoints", task.pk, "checkpoint_step_20.pt")
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"x")
    for step, path in ((10, "/gone.pt"), (20, str(kept)), (30, "/gone-too.pt")):
        Checkpoint.objects.create(task=task, attempt=1, step=step, path=path, at=now())
    again = Task.objects.get(pk=colleague.post(f"/training-tasks/{task.pk}/retry").data["taskId"])
    assert again.spec["resume_from"] == str(kept)
    kept.unlink()
    anew = Task.objects.get(pk=colleague.post(f"/training-tasks/{task.pk}/retry").data["taskId"])
    assert anew.spec["resume_from"] == ""


@pytest.mark.parametrize(
    ("spares", "problems"),
    [
        (["env-002", "env-009"], {"spareEnvironmentIds.1": "ENVIRONMENT_UNKNOWN"}),
        (["env-002", "env-002"], {"spareEnvironmentIds.1": "ENVIRONMENT_DUPLICATE"}),
        (["env-003"], {"spareEnvironmentIds.0": "SPARE_CHOSEN"}),
        (["foreign"], {"spareEnvironmentIds.0": "ENVIRONMENT_FOREIGN"}),
        (["elsewhere"], {"spareEnvironmentIds.0": "CLUSTERS_DIFFER"}),
    ],
)
def test_spares_that_could_never_replace_a_node_are_refused(
    colleague: Api, environments: dict[str, DevEnvironment], other_project: Project, spares: Any, problems: Any
) -> None:
    Membership.objects.create(project=other_project, user=colleague.user, role=Role.MEMBER)
    one = {"zone": environments["env-001"].zone, "gpu_count": 8}
    DevEnvironment.objects.create(
        id="foreign", name="f", project=other_project, cluster=environments["env-001"].cluster, **one
    )
    other = Cluster.objects.create(name="other", backend="local")
    DevEnvironment.objects.create(id="elsewhere", name="e", project_id="project-one", cluster=other, **one)
    request = {**DOCUMENT, "spareEnvironmentIds": spares}
    assert colleague.post("/training-tasks", request).problems == problems
    shown = colleague.post("/training-tasks/preview", request).data["problems"]
    assert {problem["field"]: problem["error"] for problem in shown} == problems


def test_stopped_and_busy_spares_are_accepted_and_kept(colleague: Api, environments: dict[str, DevEnvironment]) -> None:
    Lease.objects.create(environment=environments["env-002"], holder="task-other")
    request = {**DOCUMENT, "spareEnvironmentIds": ["env-004", "env-002"]}
    first = colleague.post("/training-tasks", request).data["taskId"]
    assert colleague.post(f"/training-tasks/{first}/clone").data["request"] == request
    Task.objects.filter(pk=first).update(state=TaskState.FAILED, due_at=None, ended_at=now())
    again = colleague.post(f"/training-tasks/{first}/retry").data["taskId"]
    assert colleague.get(f"/training-tasks/{again}").data["request"]["spareEnvironmentIds"] == ["env-004", "env-002"]


def test_a_task_that_moved_to_other_environments_shows_them(colleague: Api) -> None:
    key = colleague.post("/training-tasks", {**DOCUMENT, "spareEnvironmentIds": ["env-002"]}).data["taskId"]
    DevEnvironment.objects.filter(pk="env-001").update(status="unhealthy")
    Task.objects.filter(pk=key).update(state=TaskState.QUEUED, attempt=1)
    assert placement.replace_lost_nodes(Task.objects.get(pk=key))
    shown = colleague.get(f"/training-tasks/{key}").data
    assert shown["masterNode"] == "env-002"
    assert [node["environmentId"] for node in shown["nodes"]] == ["env-002", "env-003", "env-005"]
    [event] = [
        event for event in colleague.get(f"/training-tasks/{key}/events").data["items"]
        if event["code"] == "ENVIRONMENT_REPLACED"
    ]  # fmt: skip
    assert "unhealthy" in event["message"]
