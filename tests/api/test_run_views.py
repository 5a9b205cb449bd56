"""Saved views of the table of runs: one's own, and those of a project."""

from typing import Any

import pytest

from apps.common.row_bounds import MAX_ROWS
from apps.runs.models import RunView
from apps.training.models import Task
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

pytestmark = pytest.mark.database

ONE = "project-one"
VIEW = {
    "name": "best of wiki",
    "query": 'tag:wiki metric.loss<3 "two words"',
    "columns": ["param.lr", "metric.val_loss.best"],
    "sort": "-metric.val_loss.best",
    "groupBy": ["param.lr"],
}


def test_a_view_of_ones_own_is_seen_by_nobody_else(colleague: Api, owner: Api, admin: Api, anonymous: Api) -> None:
    made = colleague.post("/run-views", VIEW)
    assert made.status == 201
    assert made.data == {
        **VIEW, "id": made.data["id"], "projectId": None, "pinned": [], "baseline": None, "mayChange": True
    }  # fmt: skip
    assert colleague.get("/run-views").data["items"] == [made.data]
    path = f"/run-views/{made.data['id']}"
    for person in (owner, admin):
        assert person.get("/run-views").data["items"] == []
        assert person.patch(path, {"name": "x"}).error == "NOT_FOUND"
        assert person.delete(path).error == "NOT_FOUND"
    for answer in (anonymous.get("/run-views"), anonymous.post("/run-views", VIEW), anonymous.patch(path, {}),
                   anonymous.delete(path)):  # fmt: skip
        assert answer.error == "NOT_AUTHENTICATED"
    changes = {"sort": "", "columns": []}
    assert colleague.patch(path, changes).data == {**made.data, **changes}
    assert colleague.delete(path).status == 200
    assert not RunView.objects.exists()


def test_a_view_of_a_project_is_seen_by_all_and_changed_by_members(
    colleague: Api, owner: Api, viewer: Api, stranger: Api, admin: Api
) -> None:
    made = colleague.post("/run-views", {**VIEW, "projectId": ONE}).data
    path = f"/run-views/{made['id']}"
    for person, may_change in ((colleague, True), (owner, True), (viewer, False), (admin, True)):
        (found,) = person.get("/run-views", project=ONE).data["items"]
        assert (found["projectId"], found["mayChange"]) == (ONE, may_change)
    assert stranger.get("/run-views").data["items"] == []
    assert owner.patch(path, {"query": "status:failed"}).data["query"] == "status:failed"
    assert viewer.patch(path, {"query": ""}).error == "FORBIDDEN"
    assert viewer.delete(path).error == "FORBIDDEN"
    assert viewer.post("/run-views", {**VIEW, "name": "x", "projectId": ONE}).error == "FORBIDDEN"
    for answer in (
        stranger.patch(path, {"query": ""}), stranger.delete(path),
        stranger.post("/run-views", {**VIEW, "projectId": ONE}),
    ):  # fmt: skip
        assert answer.error == "NOT_FOUND"
    assert owner.delete(path).status == 200


def test_two_views_of_one_owner_have_two_names(colleague: Api, owner: Api) -> None:
    colleague.post("/run-views", VIEW)
    assert colleague.post("/run-views", VIEW).problems == {"name": "RUN_VIEW_NAME_TAKEN"}
    assert owner.post("/run-views", VIEW).status == 201
    assert colleague.post("/run-views", {**VIEW, "projectId": ONE}).status == 201
    assert owner.post("/run-views", {**VIEW, "projectId": ONE}).problems == {"name": "RUN_VIEW_NAME_TAKEN"}
    other = colleague.post("/run-views", {**VIEW, "name": "other"}).data
    assert colleague.patch(f"/run-views/{other['id']}", {"name": VIEW["name"]}).error == "RUN_VIEW_NAME_TAKEN"


def test_views_are_bounded(colleague: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MAX_ROWS, "run-views", 1)
    colleague.post("/run-views", VIEW)
    assert colleague.post("/run-views", {**VIEW, "name": "x"}).error == "ROWS_FULL"
    assert colleague.post("/run-views", {**VIEW, "projectId": ONE}).status == 201


@pytest.mark.usefixtures("environments", "dataset", "model")
def test_pinned_runs_and_the_baseline_are_of_those_that_one_may_see(colleague: Api, stranger: Api, owner: Api) -> None:
    first, second = (owner.post("/training-tasks", changed()).data["taskId"] for _ in range(2))
    body = {**VIEW, "pinned": [first, second, first], "baseline": first, "projectId": ONE}
    made = colleague.post("/run-views", body).data
    assert (made["pinned"], made["baseline"]) == ([first, second], first)
    Task.objects.filter(pk=first).delete()
    (found,) = colleague.get("/run-views").data["items"]
    assert (found["pinned"], found["baseline"]) == ([second], None)
    assert stranger.post("/run-views", {**VIEW, "pinned": [second]}).problems == {"pinned": "RUN_UNKNOWN"}
    assert stranger.post("/run-views", {**VIEW, "baseline": second}).problems == {"baseline": "RUN_UNKNOWN"}
    path = f"/run-views/{made['id']}"
    assert colleague.patch(path, {"pinned": ["task-none"]}).problems == {"pinned": "RUN_UNKNOWN"}
    assert colleague.patch(path, {"pinned": [], "baseline": None}).data["pinned"] == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""), ("name", "x" * 61), ("query", "x" * 2001), ("query", "lr>(1"),
        ("columns", ["x"] * 41), ("groupBy", ["a"] * 4),
        ("pinned", ["a"] * 21), ("sort", "x" * 252),
    ],
)  # fmt: skip
def test_what_is_out_of_bounds_is_refused_by_field(colleague: Api, field: str, value: Any) -> None:
    assert list(colleague.post("/run-views", {**VIEW, field: value}).problems) == [field]
