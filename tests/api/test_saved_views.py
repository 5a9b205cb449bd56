import pytest

from apps.common.row_bounds import MAX_ROWS

pytestmark = pytest.mark.database

VIEW = {"section": "training", "name": "mine that run", "query": "status=running&ordering=-step"}


def test_a_saved_view_belongs_to_its_owner(colleague, owner):
    made = colleague.post("/saved-views", VIEW)
    assert made.status == 201
    assert colleague.get("/saved-views", section="training").data["items"] == [{**VIEW, "id": made.data["id"]}]
    assert colleague.get("/saved-views", section="workers").data["items"] == []
    assert owner.get("/saved-views").data["items"] == []
    assert owner.delete(f"/saved-views/{made.data['id']}").error == "NOT_FOUND"
    assert colleague.delete(f"/saved-views/{made.data['id']}").status == 200
    assert colleague.get("/saved-views").data["items"] == []


def test_saving_under_the_same_name_replaces_a_view(colleague):
    first = colleague.post("/saved-views", VIEW).data
    again = colleague.post("/saved-views", {**VIEW, "query": ""}).data
    assert again == {**first, "query": ""}
    assert colleague.get("/saved-views").ids == [first["id"]]


def test_saved_views_per_user_are_limited(colleague, monkeypatch):
    monkeypatch.setitem(MAX_ROWS, "saved-views", 1)
    colleague.post("/saved-views", VIEW)
    assert colleague.post("/saved-views", {**VIEW, "name": "another"}).error == "ROWS_FULL"
    assert colleague.post("/saved-views", {**VIEW, "query": "status=failed"}).status == 201


@pytest.mark.parametrize(("field", "value"), [("section", "../admin"), ("name", ""), ("query", "x" * 1001)])
def test_an_invalid_view_is_refused_by_field(colleague, field, value):
    assert list(colleague.post("/saved-views", {**VIEW, field: value}).problems) == [field]


def test_anonymous_users_have_no_saved_views(anonymous):
    assert anonymous.get("/saved-views").error == "NOT_AUTHENTICATED"
    assert anonymous.post("/saved-views", VIEW).error == "NOT_AUTHENTICATED"
