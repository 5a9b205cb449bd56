"""Who holds memory in an environment that a task would use: told, waited for, asked, ended by whose it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from apps.accounts.models import AuditEvent
from apps.clusters.models import DevEnvironment
from apps.common.clock import now
from apps.environments import memory_surveys, session
from apps.environments.models import Hosted, MemoryLook
from apps.notices.models import Incident
from apps.training.models import Task
from apps.training.reconcile import reconciler
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]
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


def test_a_preview_lists_memory_holders_and_their_owners(owner: Api, colleague: Api) -> None:
    [found] = colleague.post("/training-tasks/preview", changed()).data["inUse"]
    assert found["environmentId"] == "env-001"
    kernel, other = found["processes"]
    assert (kernel["kind"], kernel["name"], kernel["owner"], kernel["gpuBytes"], kernel["mine"]) == (
        "kernel", "train.ipynb", "owner", 9, False,
    )  # fmt: skip
    assert (other["kind"], other["id"], other["name"], other["since"]) == ("process", "8", "vllm serve", 80.0)
    [mine] = owner.post("/training-tasks/preview", changed()).data["inUse"]
    assert [one["mine"] for one in mine["processes"]] == [True, False]


def test_a_task_waits_for_memory_and_starts_when_it_is_free(colleague: Api, lab: Hosted) -> None:
    task = colleague.post("/training-tasks", changed(whenInUse="wait")).data["taskId"]
    process_task(task)
    shown = colleague.get(f"/training-tasks/{task}").data
    assert (shown["status"], shown["reason"]["code"]) == ("queued", "ENVIRONMENTS_IN_USE")
    assert "train.ipynb" in shown["reason"]["message"]
    Hosted.objects.filter(pk=lab.pk).update(seen={})
    process_task(task)
    assert colleague.get(f"/training-tasks/{task}").data["status"] == "starting"


def test_a_task_that_starts_next_to_memory_holders_says_so(colleague: Api) -> None:
    created = colleague.post("/training-tasks", changed()).data
    assert "ENVIRONMENTS_IN_USE" in [warning["code"] for warning in created["warnings"]]


def test_each_user_asks_an_owner_once(owner: Api, colleague: Api) -> None:
    for _ in range(2):
        colleague.post("/dev-environments/env-001/ask-owner").data  # noqa: B018
    told = Incident.objects.get(kind="environment_wanted")
    assert (told.owner, told.params["by"]) == (owner.user, "colleague")
    assert "train.ipynb" in told.params["held"]


def test_an_owner_cannot_be_asked_where_nothing_holds_memory(colleague: Api, lab: Hosted) -> None:
    Hosted.objects.filter(pk=lab.pk).update(seen={})
    assert colleague.post("/dev-environments/env-001/ask-owner").error == "ENVIRONMENT_NOT_IN_USE"


def test_the_owner_of_an_environment_ends_a_kernel(owner: Api, colleague: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(environment: DevEnvironment) -> Any:
        raise OSError("nobody answers")

    monkeypatch.setattr("apps.environments.connection.dial_envd", away)
    refused = colleague.post("/dev-environments/env-001/kernels/k1/end")
    assert (refused.status, refused.error) == (403, "KERNEL_OF_ANOTHER")
    assert owner.post("/dev-environments/env-001/kernels/k1/end").error == "KERNEL_NOT_ENDED"


def test_viewers_and_strangers_neither_ask_nor_end(viewer: Api, stranger: Api) -> None:
    for path in ("/dev-environments/env-001/ask-owner", "/dev-environments/env-001/kernels/k1/end"):
        assert viewer.post(path).status == 403
        assert stranger.post(path).status == 404


# --- environments that were discovered ---

HOLDERS = {
    "gpus": [{"index": 0, "name": "A800", "total_bytes": 80 << 30, "free_bytes": 12 << 30}],
    "kernels": [
        {"id": "k9", "pid": 70, "started": 4711, "python": "/opt/conda/bin/python", "since": 100.0,
         "notebook": "train.ipynb", "busy": False, "rss_bytes": 1 << 30},
    ],
    "holders": [
        {"pid": 71, "name": "python worker.py", "since": 101.0, "gpus": [0], "rss_bytes": 5, "gpu_bytes": 9,
         "kernel": 70},
        {"pid": 80, "name": "vllm serve", "since": 80.0, "gpus": [0], "rss_bytes": 4, "gpu_bytes": 8, "kernel": 0},
    ],
}  # fmt: skip


class Inside:
    """In place of the environment: what it is asked, and what it says of its memory."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.holders: Any = HOLDERS

    def request(self, what: str, **request: Any) -> dict[str, Any]:
        self.asked.append({"ask": what, **request})
        return {"holders": self.holders} if what == "survey" else {"by": "signal"}


@pytest.fixture
def discovered(owner: Api, lab: Hosted, monkeypatch: pytest.MonkeyPatch) -> Inside:
    Hosted.objects.filter(pk="env-001").delete()
    DevEnvironment.objects.filter(pk="env-001").update(owner=owner.user, discovered_as="training/lab")
    inside = Inside()

    @contextmanager
    def enter(environment: DevEnvironment) -> Iterator[Inside]:
        assert environment.pk == "env-001"
        yield inside

    monkeypatch.setattr(session, "open_session", enter)
    return inside


def test_a_discovered_environment_is_surveyed_and_reports_free_memory(
    owner: Api, colleague: Api, discovered: Inside
) -> None:
    first = owner.post("/training-tasks/preview", changed()).data
    assert (first["inUse"], first["memoryLooking"]) == ([], True)
    assert memory_surveys.run_due_survey() == 1
    for someone, mine in ((owner, True), (colleague, False)):
        answer = someone.post("/training-tasks/preview", changed()).data
        [found] = answer["inUse"]
        assert not answer["memoryLooking"]
        kernel, other = found["processes"]
        assert (kernel["kind"], kernel["id"], kernel["name"], kernel["gpuBytes"], kernel["mine"]) == (
            "kernel", "k9", "train.ipynb", 9, mine,
        )  # fmt: skip
        assert (other["kind"], other["id"], other["mine"]) == ("process", "80", False)
        assert found["gpus"] == [{"index": 0, "name": "A800", "totalBytes": 80 << 30, "freeBytes": 12 << 30}]
        [left] = [one for one in answer["warnings"] if one["code"] == "GPU_MEMORY_LEFT"]
        assert "12 / 80 GiB" in left["message"]
    assert memory_surveys.run_due_survey() == 0, "what is known counts for a while"
    MemoryLook.objects.update(looked_at=now() - memory_surveys.VALID_FOR - timedelta(seconds=1))
    assert owner.get("/dev-environments/env-001/memory").data["looking"]


def test_only_the_surveyed_kernel_is_ended_and_only_by_its_owner(
    owner: Api, colleague: Api, discovered: Inside
) -> None:
    owner.get("/dev-environments/env-001/memory")
    memory_surveys.run_due_survey()
    end = "/dev-environments/env-001/kernels/k9/end"
    refused = colleague.post(end)
    assert (refused.status, refused.error) == (403, "KERNEL_OF_ANOTHER")
    assert owner.post("/dev-environments/env-001/kernels/k1/end").error == "KERNEL_UNKNOWN"
    assert [one["ask"] for one in discovered.asked] == ["survey"]
    assert owner.post(end).status == 200
    assert discovered.asked[-1] == {"ask": "end-kernel", "pid": 70, "started": 4711}
    assert AuditEvent.objects.get(action="environment.end-kernel").data["kernel"] == "k9"
    assert owner.get("/dev-environments/env-001/memory").data["looking"], "it is looked at anew"
    DevEnvironment.objects.filter(pk="env-001").update(owner=None)
    assert colleague.post(end).error == "KERNEL_OF_NOBODY"


def test_a_waiting_task_waits_for_the_survey_and_then_for_memory(colleague: Api, discovered: Inside) -> None:
    task = colleague.post("/training-tasks", changed(whenInUse="wait")).data["taskId"]
    process_task(task)
    assert colleague.get(f"/training-tasks/{task}").data["reason"]["code"] == "MEMORY_LOOKED_AT"
    memory_surveys.run_due_survey()
    process_task(task)
    assert colleague.get(f"/training-tasks/{task}").data["reason"]["code"] == "ENVIRONMENTS_IN_USE"
    discovered.holders = {"gpus": [], "kernels": [], "holders": []}
    MemoryLook.objects.update(due_at=now())
    memory_surveys.run_due_survey()
    process_task(task)
    assert colleague.get(f"/training-tasks/{task}").data["status"] == "starting"


def test_malformed_survey_answers_are_ignored(owner: Api, discovered: Inside) -> None:
    discovered.holders = {
        "gpus": [{"index": "x", "total_bytes": -1}, "none"] * 200,
        "kernels": [{"id": "../x", "pid": 5, "started": 6}, 7],
        "holders": [{"pid": 5, "name": 3, "rss_bytes": 1e300, "kernel": [1]}] * 200,
    }  # fmt: skip
    owner.get("/dev-environments/env-001/memory")
    memory_surveys.run_due_survey()
    found = owner.get("/dev-environments/env-001/memory").data
    assert found["gpus"] == []
    assert len(found["processes"]) == 50
    assert MemoryLook.objects.get().found["kernels"][0]["id"] == "5-6"


def process_task(task: str) -> None:
    for _ in range(3):
        Task.objects.filter(pk=task).update(due_at=Task.objects.get(pk=task).created_at)
        reconciler.reconcile_tasks(task)
