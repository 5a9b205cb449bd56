from fermi.client import Fermi
from tests.fakes.api import FakeApi, data, page

TASKS = [{"taskId": f"task-{number}"} for number in range(450)]


def test_a_list_reads_all_its_pages(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", "/training-tasks", page(TASKS))
    assert list(fermi.tasks.list()) == TASKS
    assert [request.query["page"] for request in api.requests] == ["1", "2", "3"]


def test_cursors_are_used_where_available(api: FakeApi, fermi: Fermi) -> None:
    """The first page counts, and nobody counts again."""
    first = {"items": TASKS[:200], "total": 400, "totalIsExact": False, "page": 1, "pageSize": 200, "nextCursor": "a"}
    further = {"total": None, "totalIsExact": None, "page": None, "pageSize": 200}
    second = {**further, "items": TASKS[200:400], "nextCursor": "b"}
    third = {**further, "items": TASKS[400:], "nextCursor": None}
    api.on("GET", "/training-tasks", data(first), data(second), data(third))
    assert list(fermi.tasks.list(status="failed")) == TASKS
    asked = [request.query for request in api.requests]
    assert [(one.get("page"), one.get("cursor"), one["status"]) for one in asked] == [
        ("1", None, "failed"), (None, "a", "failed"), (None, "b", "failed")
    ]  # fmt: skip


def test_lists_without_cursors_use_page_numbers(api: FakeApi, fermi: Fermi) -> None:
    """As one in the order of what changes."""
    pages = [
        {"items": TASKS[begin : begin + 200], "total": 450, "totalIsExact": True, "page": number, "pageSize": 200,
         "nextCursor": None}
        for number, begin in enumerate(range(0, 450, 200), 1)
    ]  # fmt: skip
    api.on("GET", "/training-tasks", *map(data, pages))
    assert list(fermi.tasks.list(ordering="-step")) == TASKS
    assert [request.query["page"] for request in api.requests] == ["1", "2", "3"]


def test_an_empty_list_is_one_request(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", "/training-tasks", page([]))
    assert list(fermi.tasks.list()) == []
    assert len(api.requests) == 1


def test_pages_are_fetched_lazily(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", "/training-tasks", page(TASKS))
    assert next(iter(fermi.tasks.list())) == TASKS[0]
    assert len(api.requests) == 1


def test_the_start_of_a_list_is_one_request(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", "/training-tasks", page(TASKS))
    assert fermi.tasks.list().first(3) == TASKS[:3]
    assert api.requests[0].query["pageSize"] == "3"
    assert fermi.tasks.list().first(300) == TASKS[:300]


def test_a_list_knows_its_length(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", "/training-tasks", page(TASKS))
    assert fermi.tasks.list().total == 450


def test_only_given_filters_are_sent(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", "/training-tasks", page([]))
    list(fermi.tasks.list(status=["running", "queued"], created_after="2026-01-01T00:00:00Z"))
    queries = api.requests[0].queries
    assert queries["status"] == ["running", "queued"]
    assert queries["createdAfter"] == ["2026-01-01T00:00:00Z"]
    assert set(queries) == {"status", "createdAfter", "page", "pageSize"}


def test_metrics_are_read_to_the_end(api: FakeApi, fermi: Fermi) -> None:
    path = "/training-tasks/task-1/metrics"
    points = [{"id": number, "step": number, "values": {"loss": 1.0}} for number in range(4)]
    api.on("GET", path, data({"items": points[:3], "next": 2}), data({"items": points[3:], "next": None}))
    assert list(fermi.tasks.metrics("task-1", names=["loss", "lr"], rank=0)) == points
    first, second = api.list_requests("GET", path)
    assert first.queries == {"names": ["loss", "lr"], "rank": ["0"]}
    assert second.queries == {"names": ["loss", "lr"], "rank": ["0"], "after": ["2"]}


def test_queue_and_timeline_send_given_parameters(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", "/queue", page([{"number": 1, "taskId": None}]))
    api.on("GET", "/environments/timeline", data({"environments": []}))
    assert list(fermi.queue("project-1")) == [{"number": 1, "taskId": None}]
    assert fermi.environments.timeline(begins="2026-11-23T00:00:00Z") == {"environments": []}
    listed, timeline = (request.query for request in api.requests)
    assert (listed["project"], "cluster" in listed) == ("project-1", False)
    assert timeline == {"from": "2026-11-23T00:00:00Z"}
