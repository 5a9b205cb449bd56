"""Tags, notes and archived runs: who may change them, of one run and of many."""

from typing import Any

import pytest

from apps.accounts.models import AuditEvent
from apps.common.clock import now
from apps.runs.models import Run, RunTag
from apps.runs.services import records
from apps.training.models import Task
from apps.training.states import TaskState
from fermi.jobs.errors import BackendError
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]


@pytest.fixture
def task(owner: Api) -> str:
    key: str = owner.post("/training-tasks", changed()).data["taskId"]
    return key


def finish(*keys: str) -> None:
    Task.objects.filter(pk__in=keys).update(state=TaskState.SUCCEEDED, ended_at=now(), due_at=None)


def list_tags(key: str) -> list[str]:
    return list(RunTag.objects.filter(task=key).order_by("name").values_list("name", flat=True))


def test_members_tag_note_and_archive_a_run(task: str, colleague: Api) -> None:
    answer = colleague.patch(f"/runs/{task}", {"tags": ["b", " wiki v2 ", "b"], "note": "# A note\n", "archived": True})
    assert answer.data == {
        "taskId": task,
        "tags": ["b", "wiki v2"],
        "note": "# A note\n",
        "archivedAt": answer.data["archivedAt"],
    }
    assert answer.data["archivedAt"]
    again = colleague.patch(f"/runs/{task}", {"archived": True, "tags": ["a", "b"]}).data
    assert again == {**answer.data, "tags": ["a", "b"]}, "what is not named stays, and so does the date"
    back = colleague.patch(f"/runs/{task}", {"archived": False, "tags": [], "note": ""}).data
    assert back == {"taskId": task, "tags": [], "note": "", "archivedAt": None}
    assert AuditEvent.objects.filter(action="run.change", target=task).count() == 3


def test_viewers_change_nothing_and_strangers_see_nothing(
    task: str, viewer: Api, stranger: Api, anonymous: Api, admin: Api
) -> None:
    assert viewer.patch(f"/runs/{task}", {"note": "x"}).error == "FORBIDDEN"
    assert stranger.patch(f"/runs/{task}", {"note": "x"}).error == "NOT_FOUND"
    assert anonymous.patch(f"/runs/{task}", {"note": "x"}).error == "NOT_AUTHENTICATED"
    assert admin.patch(f"/runs/{task}", {"note": "x"}).data["note"] == "x"
    assert stranger.patch("/runs/task-none", {"note": "x"}).error == "NOT_FOUND"


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({"tags": [f"t{number}" for number in range(51)]}, "tags", "FIELD_LENGTH"),
        ({"tags": ["a,b"]}, "tags.0", "TAG_INVALID"),
        ({"tags": ["+a"]}, "tags.0", "TAG_INVALID"),
        ({"tags": ["-a"]}, "tags.0", "TAG_INVALID"),
        ({"tags": ['"a"']}, "tags.0", "TAG_INVALID"),
        ({"tags": ["a\nb"]}, "tags.0", "TAG_INVALID"),
        ({"tags": [""]}, "tags.0", "FIELD_BLANK"),
        ({"tags": ["x" * 65]}, "tags.0", "FIELD_LENGTH"),
        ({"note": "x" * 20_001}, "note", "FIELD_LENGTH"),
        ({"archived": "yes"}, "archived", "WRONG_TYPE"),
        ({"name": "x"}, "name", "UNKNOWN_FIELD"),
    ],
)
def test_what_is_out_of_bounds_is_refused_by_field(
    task: str, owner: Api, body: dict[str, Any], field: str, code: str
) -> None:
    assert owner.patch(f"/runs/{task}", body).problems == {field: code}
    assert not RunTag.objects.exists()


def test_tags_are_added_to_and_removed_from_many_runs(task: str, colleague: Api, stranger: Api, viewer: Api) -> None:
    other = colleague.post("/training-tasks", changed()).data["taskId"]
    body = {"taskIds": [task, other, "task-none", task], "action": "addTags", "tags": ["a", "b"]}
    found = colleague.post("/runs/bulk", body).data
    assert [(one["taskId"], one["done"]) for one in found["items"]] == [
        (task, True), (other, True), ("task-none", False)
    ]  # fmt: skip
    assert found["items"][2]["refusal"]["code"] == "NOT_FOUND"
    assert found["done"] == 2
    assert (list_tags(task), list_tags(other)) == (["a", "b"], ["a", "b"])
    colleague.post("/runs/bulk", {"taskIds": [task], "action": "removeTags", "tags": ["a", "c"]})
    assert (list_tags(task), list_tags(other)) == (["b"], ["a", "b"])
    for person, code in ((stranger, "NOT_FOUND"), (viewer, "FORBIDDEN")):
        items = person.post("/runs/bulk", {**body, "taskIds": [task]}).data["items"]
        assert [one["refusal"]["code"] for one in items] == [code]
    assert list_tags(task) == ["b"]


def test_a_run_that_would_have_too_many_tags_is_refused_and_others_are_tagged(task: str, owner: Api) -> None:
    other = owner.post("/training-tasks", changed()).data["taskId"]
    owner.patch(f"/runs/{task}", {"tags": [f"t{number}" for number in range(50)]})
    items = owner.post("/runs/bulk", {"taskIds": [task, other], "action": "addTags", "tags": ["t1", "new"]}).data[
        "items"
    ]
    assert [one["refusal"] and one["refusal"]["code"] for one in items] == ["RUN_TAGS_FULL", None]
    assert (len(list_tags(task)), list_tags(other)) == (50, ["new", "t1"])
    items = owner.post("/runs/bulk", {"taskIds": [task], "action": "addTags", "tags": ["t1"]}).data["items"]
    assert items[0]["done"], "it has that one already"


def test_many_runs_are_archived_stopped_and_deleted(task: str, owner: Api) -> None:
    other = owner.post("/training-tasks", changed()).data["taskId"]
    both = {"taskIds": [task, other]}
    assert owner.post("/runs/bulk", {**both, "action": "archive"}).data["done"] == 2
    assert Run.objects.exclude(archived_at=None).count() == 2
    assert owner.post("/runs/bulk", {**both, "action": "unarchive"}).data["done"] == 2
    assert Run.objects.exclude(archived_at=None).count() == 0
    assert owner.post("/runs/bulk", {**both, "action": "stop"}).data["done"] == 2
    assert Task.objects.exclude(stop_requested_at=None).count() == 2
    finish(task)
    owner.patch(f"/runs/{task}", {"tags": ["a"], "note": "x"})
    items = owner.post("/runs/bulk", {**both, "action": "delete"}).data["items"]
    assert [one["refusal"] and one["refusal"]["code"] for one in items] == [None, "TASK_NOT_FINAL"]
    assert list(Task.objects.values_list("pk", flat=True)) == [other]
    assert not Run.objects.filter(task=task).exists()
    assert not RunTag.objects.exists()


def test_viewers_and_strangers_stop_and_delete_nothing(task: str, viewer: Api, stranger: Api, anonymous: Api) -> None:
    finish(task)
    for action in ("stop", "delete", "archive"):
        for person, code in ((viewer, "FORBIDDEN"), (stranger, "NOT_FOUND")):
            (item,) = person.post("/runs/bulk", {"taskIds": [task], "action": action}).data["items"]
            assert item["refusal"]["code"] == code
    assert anonymous.post("/runs/bulk", {"taskIds": [task], "action": "stop"}).error == "NOT_AUTHENTICATED"
    assert Task.objects.filter(pk=task, stop_requested_at=None).exists()


def test_what_does_not_fit_into_the_time_of_a_request_is_refused(
    task: str, owner: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_ACTION_SECONDS", -1.0)
    (item,) = owner.post("/runs/bulk", {"taskIds": [task], "action": "stop"}).data["items"]
    assert item["refusal"]["code"] == "RUNS_NOT_REACHED"


def test_an_engine_that_cannot_be_asked_refuses_its_own_runs_only(
    task: str, owner: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise BackendError("ENVIRONMENT_AWAY", environment="a")

    monkeypatch.setattr(records, "delete_task", fail)
    (item,) = owner.post("/runs/bulk", {"taskIds": [task], "action": "delete"}).data["items"]
    assert item["refusal"]["code"] == "ENVIRONMENT_AWAY"


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({"taskIds": [], "action": "stop"}, "taskIds", "FIELD_LENGTH"),
        ({"taskIds": ["a"] * 1001, "action": "stop"}, "taskIds", "FIELD_LENGTH"),
        ({"taskIds": ["a"], "action": "explode"}, "action", "FIELD_CHOICE"),
        ({"taskIds": ["a"], "action": "addTags"}, "tags", "RUN_TAGS_NEEDED"),
        ({"taskIds": ["a"], "action": "stop", "tags": ["a"]}, "tags", "RUN_TAGS_NOT_NEEDED"),
        ({"taskIds": ["a"], "action": "addTags", "tags": ["a*"]}, "tags.0", "TAG_INVALID"),
        ({"taskIds": "a", "action": "stop"}, "taskIds", "FIELD_INVALID"),
    ],
)
def test_a_malformed_bulk_request_is_refused_by_field(owner: Api, body: dict[str, Any], field: str, code: str) -> None:
    assert owner.post("/runs/bulk", body).problems == {field: code}


def test_a_task_is_created_with_tags_that_its_answer_shows(owner: Api, viewer: Api) -> None:
    made = owner.post("/training-tasks", {**changed(), "tags": ["b", " a ", "b"]})
    task = made.data["taskId"]
    found = viewer.get(f"/training-tasks/{task}").data
    assert (found["tags"], found["note"], found["archivedAt"]) == (["a", "b"], "", None)
    owner.patch(f"/runs/{task}", {"note": "mine", "archived": True, "tags": []})
    found = viewer.get(f"/training-tasks/{task}").data
    assert (found["tags"], found["note"], found["archivedAt"] is None) == ([], "mine", False)
    assert owner.post(f"/training-tasks/{task}/clone").data["request"]["tags"] == ["b", " a ", "b"]


@pytest.mark.parametrize(
    ("tags", "problems"),
    [
        (["a,b"], {"tags.0": "TAG_INVALID"}),
        (["a", "-b"], {"tags.1": "TAG_INVALID"}),
        (["x" * 65], {"tags.0": "FIELD_LENGTH"}),
        (["a"] * 51, {"tags": "FIELD_LENGTH"}),
        (["  "], {"tags.0": "TAG_INVALID"}),
        ("a", {"tags": "FIELD_INVALID"}),
    ],
)
def test_a_request_with_invalid_tags_is_refused(owner: Api, tags: Any, problems: dict[str, str]) -> None:
    answer = owner.post("/training-tasks", {**changed(), "tags": tags})
    assert (answer.status, answer.problems) == (400, problems)
    assert not Task.objects.exists()


def test_lists_of_tasks_leave_out_archived_ones_where_that_is_asked_for(owner: Api) -> None:
    kept, archived = (owner.post("/training-tasks", changed()).data["taskId"] for _ in range(2))
    owner.patch(f"/runs/{archived}", {"archived": True})
    owner.patch(f"/runs/{kept}", {"note": "x"})

    def list_ids(**query: str) -> set[str]:
        return {item["taskId"] for item in owner.get("/training-tasks", **query).data["items"]}

    assert list_ids(archived="false") == {kept}
    assert list_ids(archived="true") == {archived}
    assert list_ids() == {kept, archived}
    assert owner.get("/training-tasks", archived="maybe").problems == {"archived": "FIELD_INVALID"}


def test_a_task_can_be_archived_by_its_note_row_being_there_already(task: str, owner: Api) -> None:
    owner.patch(f"/runs/{task}", {"note": "x"})
    owner.patch(f"/runs/{task}", {"archived": True})
    assert Run.objects.get(task=task).note == "x"
