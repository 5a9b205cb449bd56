"""Which frameworks are there, and where each can run."""

from importlib.util import find_spec

import pytest

from apps.clusters.models import Cluster, DevEnvironment
from apps.training.models import Task
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]
without_horovod = pytest.mark.skipif(bool(find_spec("horovod")), reason="Horovod is installed here")


def offered(api: Api, name: str) -> dict:
    return next(item for item in api.get("/frameworks").data["items"] if item["value"] == name)


@without_horovod
def test_a_framework_that_is_not_installed_is_unavailable_with_build_instructions(colleague: Api) -> None:
    horovod = offered(colleague, "horovod")
    [cluster] = horovod["clusters"]
    assert (horovod["available"], cluster["available"], cluster["lacks"]) == (False, False, ["horovod"])
    assert "make test-frameworks ONLY=horovod" in cluster["hint"]
    assert offered(colleague, "deepspeed")["available"]


@without_horovod
def test_a_task_on_a_missing_framework_is_refused_with_the_install_command(colleague: Api) -> None:
    refused = colleague.post("/training-tasks", changed(distributedConfig__framework="horovod"))
    assert refused.problems == {"distributedConfig.framework": "FRAMEWORK_NOT_INSTALLED"}
    assert "make test-frameworks ONLY=horovod" in refused.body["errors"][0]["hint"]
    assert not Task.objects.exists()
    asked = {"environmentIds": ["env-001", "env-003"], "modelParameters": 2 * 10**9}
    rejected = {one["framework"]: one for one in colleague.post("/frameworks/recommend", asked).data["rejected"]}
    assert "FRAMEWORK_NOT_INSTALLED" in [one["code"] for one in rejected["horovod"]["reasons"]]


def test_a_worker_cluster_offers_what_any_host_can_run(colleague: Api) -> None:
    workers = Cluster.objects.create(name="workers", backend="agent")
    DevEnvironment.objects.update(cluster=workers, engine={"lacks": ["horovod"]})
    assert offered(colleague, "horovod")["clusters"][0]["available"] is False
    DevEnvironment.objects.filter(pk="env-005").update(engine={})
    assert offered(colleague, "horovod")["clusters"][0]["available"] is None, "an older agent tells nothing"
    DevEnvironment.objects.filter(pk="env-003").update(engine={"lacks": []})
    assert offered(colleague, "horovod")["clusters"][0]["available"] is True


def test_users_without_environments_are_offered_every_framework(stranger: Api) -> None:
    assert {item["available"] for item in stranger.get("/frameworks").data["items"]} == {True}


def test_frameworks_and_use_cases_are_paged(colleague: Api) -> None:
    for path in ("/frameworks", "/task-templates"):
        whole = colleague.get(path).data
        assert (len(whole["items"]), whole["page"], whole["pageSize"]) == (whole["total"], 1, 200)
        second = colleague.get(f"{path}?page=2&pageSize=2").data
        assert (second["items"], second["total"]) == (whole["items"][2:4], whole["total"])
        assert colleague.get(f"{path}?pageSize=201").status == 400
