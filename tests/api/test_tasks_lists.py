"""Pages of training tasks: by number, by cursor, and where there are very many."""

import json
from base64 import urlsafe_b64encode
from datetime import timedelta
from itertools import chain

import pytest

from apps.accounts.models import Membership
from apps.common.clock import now
from apps.common.sql import CompiledQuery
from apps.training.models import Task
from apps.training.presenters import task_list
from apps.training.presenters.selectors import brief_columns
from tests.api.test_tasks_create import changed

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]

TASKS = 7
SINGLE = changed(distributedConfig=None, environmentIds=["env-001"])
KEYSET = ["createdAt", "startedAt", "name", "status", "framework", "owner", "priority", "worldSize"]


@pytest.fixture
def tasks(colleague) -> list[str]:
    """Keys, the newest first. Two were created in one moment, three have one name, three never started."""
    begin, made = now(), []
    for number in range(TASKS):
        key = colleague.post("/training-tasks", SINGLE).data["taskId"]
        Task.objects.filter(pk=key).update(
            name=f"name-{min(number, 4)}", priority=number % 2,
            created_at=begin - timedelta(minutes=min(number, 5)),
            started_at=begin - timedelta(minutes=number) if number % 2 else None,
        )  # fmt: skip
        made.append(key)
    return [*made[:5], *sorted(made[5:])]


@pytest.fixture
def few(monkeypatch) -> int:
    """As if three tasks were very many."""
    monkeypatch.setattr(task_list, "MAX_LISTED", 3)
    for name in ("_PAGES", "_COUNTED_PAGES"):
        columns = {"total_": None} if "COUNTED" in name else {}
        monkeypatch.setattr(task_list, name, CompiledQuery(task_list._query_compiled_page, brief_columns(**columns)))
    return 3


def keys(answer) -> list[str]:
    assert answer.status == 200, answer.data
    return [item["taskId"] for item in answer.data["items"]]


def walked(api, **query) -> list[str]:
    """By cursors, two at a time."""
    found, cursor = [], ""
    while cursor is not None:
        answer = api.get("/training-tasks", pageSize=2, cursor=cursor, **query)
        found += keys(answer)
        cursor = answer.data["nextCursor"]
    return found


@pytest.mark.parametrize("ordering", [*KEYSET, *(f"-{name}" for name in KEYSET)])
def test_cursors_return_the_same_rows_as_pages(colleague, tasks, ordering):
    """Also where many are equal, or have no value."""
    at_once = keys(colleague.get("/training-tasks", ordering=ordering))
    assert sorted(at_once) == sorted(tasks)
    assert walked(colleague, ordering=ordering) == at_once
    by_number = [
        keys(colleague.get("/training-tasks", ordering=ordering, pageSize=2, page=page)) for page in (1, 2, 3, 4)
    ]
    assert list(chain.from_iterable(by_number)) == at_once


@pytest.mark.parametrize("name", ["startedAt", "step"])
def test_an_order_may_be_ascending_or_descending(colleague, tasks, name):
    Task.objects.filter(pk=tasks[0]).update(started_at=now(), progress={"step": 2})
    Task.objects.filter(pk=tasks[1]).update(started_at=now() - timedelta(hours=1), progress={"step": 1})
    assert keys(colleague.get("/training-tasks", ordering=f"-{name}"))[0] == tasks[0]
    assert keys(colleague.get("/training-tasks", ordering=name))[0] == tasks[1]


def test_filters_and_search_work_with_cursors(colleague, tasks):
    assert walked(colleague, search="name-4") == tasks[4:]
    assert walked(colleague, environment="env-001", owner="colleague") == tasks
    assert walked(colleague, status="running") == []


def test_new_rows_do_not_shift_a_cursor(colleague, tasks):
    first = colleague.get("/training-tasks", pageSize=3)
    colleague.post("/training-tasks", SINGLE)
    assert keys(colleague.get("/training-tasks", pageSize=10, cursor=first.data["nextCursor"])) == tasks[3:]


def test_pages_are_counted_unless_a_cursor_is_used(colleague, tasks):
    first = colleague.get("/training-tasks", pageSize=2).data
    assert (first["total"], first["totalIsExact"], first["page"]) == (TASKS, True, 1)
    further = colleague.get("/training-tasks", pageSize=2, cursor=first["nextCursor"]).data
    assert (further["total"], further["totalIsExact"], further["page"]) == (None, None, None)
    counted = colleague.get("/training-tasks", pageSize=2, cursor=first["nextCursor"], count="true").data
    assert counted["total"] == TASKS - 2, "what is behind the cursor"
    assert colleague.get("/training-tasks", count="false").data["total"] is None
    beyond = colleague.get("/training-tasks", page=9).data
    assert (beyond["items"], beyond["total"], beyond["nextCursor"]) == ([], TASKS, None)


@pytest.mark.parametrize(
    "inside",
    [
        ["-created_at", None, "task-1"], ["-created_at", "yesterday", "task-1"], ["-created_at", 5, "task-1"],
        ["-created_at", "0001-01-01T00:00:00+14:00", "task-1"], ["created_at", "2026-01-01T00:00:00Z", "task-1"],
        ["-created_at", "2026-01-01T00:00:00Z", 7], ["-created_at", "2026-01-01T00:00:00Z", "\0"], ["-created_at"], 3,
    ],
)  # fmt: skip
def test_an_invalid_cursor_is_refused(colleague, tasks, inside):
    cursor = urlsafe_b64encode(json.dumps(inside).encode()).decode()
    assert colleague.get("/training-tasks", cursor=cursor).problems == {"cursor": "CURSOR_INVALID"}


@pytest.mark.parametrize("cursor", ["x", "näh", "%%%", "WyJh"])
def test_a_malformed_cursor_is_refused(colleague, cursor):
    assert colleague.get("/training-tasks", cursor=cursor).problems == {"cursor": "CURSOR_INVALID"}


def test_orders_by_changing_values_have_no_cursor(colleague, tasks):
    assert colleague.get("/training-tasks", ordering="-step", pageSize=2).data["nextCursor"] is None
    cursor = urlsafe_b64encode(json.dumps(["-progress__step", 3, "task-1"]).encode()).decode()
    answer = colleague.get("/training-tasks", ordering="-step", cursor=cursor)
    assert answer.problems == {"cursor": "CURSOR_INVALID"}


def test_counts_stop_at_a_limit(colleague, tasks, few):
    for query in ({}, {"search": "name"}, {"page": 2, "pageSize": 2}):
        found = colleague.get("/training-tasks", **query).data
        assert (found["total"], found["totalIsExact"]) == (few, False), query
    assert colleague.get("/training-tasks", search="name-2").data["totalIsExact"]


def test_pages_far_behind_need_a_cursor(colleague, tasks, few):
    assert keys(colleague.get("/training-tasks", pageSize=2, page=2)) == tasks[2:4]
    answer = colleague.get("/training-tasks", pageSize=2, page=3)
    assert (answer.status, answer.problems) == (400, {"page": "PAGE_TOO_FAR"})
    assert walked(colleague) == tasks


def test_other_orders_sort_the_newest_matching_tasks(colleague, tasks, few):
    assert keys(colleague.get("/training-tasks", ordering="-name")) == tasks[2::-1]
    assert walked(colleague, ordering="-name") == tasks[2::-1]
    assert colleague.get("/training-tasks", ordering="-name").data["totalIsExact"] is False


def test_a_revoked_role_shows_no_tasks(colleague, tasks):
    assert keys(colleague.get("/training-tasks"))
    Membership.objects.filter(user__username="colleague").update(role="viewer")
    assert colleague.get("/training-tasks").data["items"][0]["allowedActions"] == []
    Membership.objects.filter(user__username="colleague").delete()
    answer = colleague.get("/training-tasks").data
    assert (answer["items"], answer["total"], answer["totalIsExact"]) == ([], 0, True)


def test_a_page_takes_two_statements_beyond_authentication(colleague, tasks, django_assert_num_queries):
    """Their projects; the page, and how many there are."""
    query = {"ordering": ["-created_at"], "page": 2, "pageSize": 2}
    user = Membership.objects.get(user__username="colleague").user
    task_list.list_tasks(user, query)  # the first time, the query is compiled
    with django_assert_num_queries(2):
        assert task_list.list_tasks(user, query)["total"] == TASKS
