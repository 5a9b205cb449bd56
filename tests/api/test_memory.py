"""Who holds memory in an environment that a task would use: told, waited for, asked, ended by whose it is."""

from typing import Any

import pytest

from apps.clusters.models import DevEnvironment
from apps.common.clock import now
from apps.environments.models import Hosted
from apps.notices.models import Incident
from apps.training.models import Task
from apps.training.reconcile import reconciler
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

pytestmark = pytest.mark.usefixtures("environments", "dataset", "model")
ACTIVITY = {
    "kernels": [
        {"id": "k1", "name": "train.ipynb", "busy": True, "since": 100.0},
        {"id": "k2", "name": "idle.ipynb", "busy": False, "since": 100.0},
    ],
    "holders": [
        {"pid": 7, "name": "python", "since": 90.0, "rss_bytes": 5, "gpu_bytes": 9, "kernel": "k1"},
        {"pid": 8, "name": "vllm serve", "since": 80.0, "rss_bytes": 4, "gpu_bytes": 8, "kernel": ""},
    ],
}


@pytest.fixture(autouse=True)
def lab(owner: Api, environments: None) -> Hosted:
    DevEnvironment.objects.filter(pk="env-001").update(owner=owner.user)
    row, _ = Hosted.objects.update_or_create(
        environment_id="env-001",
        defaults={"spec": {}, "state": "running", "state_since": now(), "run": 1, "seen": {"activity": ACTIVITY}},
    )
    return row


def test_a_preview_tells_what_holds_memory_and_whose_it_is(owner: Api, colleague: Api) -> None:
    [found] = colleague.post("/training-tasks/preview", changed()).data["inUse"]
    assert found["environmentId"] == "env-001"
    kernel, other = found["processes"]
    assert (kernel["kind"], kernel["name"], kernel["owner"], kernel["gpuBytes"], kernel["mine"]) == (
        "kernel", "train.ipynb", "owner", 9, False,
    )  # fmt: skip
    assert (other["kind"], other["id"], other["name"], other["since"]) == ("process", "8", "vllm serve", 80.0)
    [mine] = owner.post("/training-tasks/preview", changed()).data["inUse"]
    assert [one["mine"] for one in mine["processes"]] == [True, False]


def test_a_task_that_is_to_wait_waits_and_goes_on_when_the_memory_is_free(colleague: Api, lab: Hosted) -> None:
    task = colleague.post("/training-tasks", changed(whenInUse="wait")).data["taskId"]
    look(task)
    shown = colleague.get(f"/training-tasks/{task}").data
    assert (shown["status"], shown["reason"]["code"]) == ("queued", "ENVIRONMENTS_IN_USE")
    assert "train.ipynb" in shown["reason"]["message"]
    Hosted.objects.filter(pk=lab.pk).update(seen={})
    look(task)
    assert colleague.get(f"/training-tasks/{task}").data["status"] == "starting"


def test_one_that_starts_beside_it_says_so(colleague: Api) -> None:
    created = colleague.post("/training-tasks", changed()).data
    assert "ENVIRONMENTS_IN_USE" in [warning["code"] for warning in created["warnings"]]


def test_the_owner_is_asked_once_by_each_who_asks(owner: Api, colleague: Api) -> None:
    for _ in range(2):
        colleague.post("/dev-environments/env-001/ask-owner").data  # noqa: B018
    told = Incident.objects.get(kind="environment_wanted")
    assert (told.owner, told.params["by"]) == (owner.user, "colleague")
    assert "train.ipynb" in told.params["held"]


def test_there_is_nothing_to_ask_for_where_nothing_holds_memory(colleague: Api, lab: Hosted) -> None:
    Hosted.objects.filter(pk=lab.pk).update(seen={})
    assert colleague.post("/dev-environments/env-001/ask-owner").error == "ENVIRONMENT_NOT_IN_USE"


def test_a_kernel_is_ended_by_whose_environment_it_is(
    owner: Api, colleague: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(environment: DevEnvironment) -> Any:
        raise OSError("nobody answers")

    monkeypatch.setattr("apps.environments.reaching.dial", away)
    refused = colleague.post("/dev-environments/env-001/kernels/k1/end")
    assert (refused.status, refused.error) == (403, "KERNEL_OF_ANOTHER")
    assert owner.post("/dev-environments/env-001/kernels/k1/end").error == "KERNEL_NOT_ENDED"


def test_viewers_and_strangers_do_neither(viewer: Api, stranger: Api) -> None:
    for path in ("/dev-environments/env-001/ask-owner", "/dev-environments/env-001/kernels/k1/end"):
        assert viewer.post(path).status == 403
        assert stranger.post(path).status == 404


def look(task: str) -> None:
    for _ in range(3):
        Task.objects.filter(pk=task).update(due_at=Task.objects.get(pk=task).created_at)
        reconciler.reconcile(task)
