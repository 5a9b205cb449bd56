from datetime import UTC, datetime

import pytest

from fermi.client import Fermi, logs
from tests.fakes.api import DROP, FakeApi, Reply, Request, data

TASK, LOGS = "/training-tasks/task-1", "/training-tasks/task-1/logs"


def task(attempt: int, *, ended: bool = False) -> Reply:
    return data({"taskId": "task-1", "attempt": attempt, "endedAt": "2026-11-21T00:00:00Z" if ended else None})


def lines(attempt: int, cursor: str, *texts: str, end: bool) -> Reply:
    items = [{"offset": number, "text": text} for number, text in enumerate(texts)]
    return data({"rank": "0", "attempt": attempt, "lines": items, "cursor": cursor, "end": end})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.001)


def test_a_log_is_read_by_pages(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", LOGS, lines(1, "c1", "a", "b", end=False), lines(1, "c2", "c", end=True))
    assert [line.text for line in fermi.tasks.logs("task-1", search="x")] == ["a", "b", "c"]
    first, second = api.list_requests("GET", LOGS)
    assert first.query == {"rank": "0", "search": "x"}
    assert second.query == {"rank": "0", "search": "x", "attempt": "1", "cursor": "c1"}


def test_an_empty_page_does_not_end_a_search(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", LOGS, lines(1, "c1", end=False), lines(1, "c2", "hit", end=True))
    assert [line.text for line in fermi.tasks.logs("task-1", search="hit")] == ["hit"]


def test_lines_of_all_ranks_carry_their_rank(api: FakeApi, fermi: Fermi) -> None:
    items = [{"rank": 3, "offset": 0, "text": "x"}]
    api.on("GET", LOGS, data({"rank": "all", "attempt": 2, "lines": items, "cursor": "c", "end": True}))
    assert list(fermi.tasks.logs("task-1", rank="all")) == [logs.LogLine(2, 3, 0, "x")]


def test_filters_are_sent_with_each_page(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", LOGS, lines(1, "c1", end=False), lines(1, "c2", "hit", end=True))
    ten = datetime(2026, 11, 22, 10, tzinfo=UTC)
    found = fermi.tasks.logs("task-1", search="h.t", regex=True, level="error", since=ten, until="2026-11-22T11:00Z")
    assert [line.text for line in found] == ["hit"]
    asked = {
        "rank": "0", "search": "h.t", "regex": "true", "level": "error",
        "since": "2026-11-22T10:00:00+00:00", "until": "2026-11-22T11:00Z",
    }  # fmt: skip
    first, second = api.list_requests("GET", LOGS)
    assert first.query == asked
    assert second.query == {**asked, "attempt": "1", "cursor": "c1"}


def test_following_sends_the_same_filters(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", TASK, task(1), task(1, ended=True))
    api.on("GET", LOGS, lines(1, "c1", "a", end=True), lines(1, "c2", "b", end=True))
    assert [line.text for line in fermi.tasks.logs("task-1", level="warning", follow=True)] == ["a", "b"]
    assert [request.query["level"] for request in api.list_requests("GET", LOGS)] == ["warning", "warning"]


def test_lines_have_level_and_time_where_known(api: FakeApi, fermi: Fermi) -> None:
    items = [{"offset": 0, "text": "x", "level": "error", "time": "2026-11-22T10:00:00Z"}, {"offset": 2, "text": "y"}]
    api.on("GET", LOGS, data({"rank": "0", "attempt": 2, "lines": items, "cursor": "c", "end": True}))
    known, unknown = fermi.tasks.logs("task-1")
    assert (known.level, known.time) == ("error", "2026-11-22T10:00:00Z")
    assert (unknown.level, unknown.time) == (None, None)


def test_a_progress_bar_is_returned_at_each_change(api: FakeApi, fermi: Fermi) -> None:
    def bar(cursor: str, text: str, **more: bool) -> Reply:
        items = [{"offset": 9, "text": text, **more}]
        return data({"rank": "0", "attempt": 1, "lines": items, "cursor": cursor, "end": True})

    api.on("GET", TASK, task(1), task(1), task(1, ended=True))
    api.on("GET", LOGS, bar("1@0:8-20", " 1%", open=True), lines(1, "1@0:8-20", end=True), bar("1@0:30", "100%"))
    found = [(line.text, line.open) for line in fermi.tasks.logs("task-1", follow=True)]
    assert found == [(" 1%", True), ("100%", False)]
    assert [request.query.get("cursor") for request in api.list_requests("GET", LOGS)] == [None, "1@0:8-20", "1@0:8-20"]


def test_reading_starts_at_the_given_offset(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", LOGS, lines(2, "c", "a", end=True))
    assert [line.text for line in fermi.tasks.logs("task-1", rank=3, attempt=2, begin=77)] == ["a"]
    assert api.list_requests("GET", LOGS)[0].query == {"rank": "3", "attempt": "2", "cursor": "2@3:77"}
    with pytest.raises(ValueError, match="attempt"):
        fermi.tasks.logs("task-1", begin=77)


def test_following_waits_for_the_first_attempt_and_ends_with_the_task(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", TASK, task(0), task(1), task(1), task(1, ended=True))
    api.on("GET", LOGS, lines(1, "c1", "a", end=True), lines(1, "c2", "b", end=True), lines(1, "c3", "c", end=True))
    assert [line.text for line in fermi.tasks.logs("task-1", follow=True)] == ["a", "b", "c"]
    assert [request.query.get("cursor") for request in api.list_requests("GET", LOGS)] == [None, "c1", "c2"]


def test_following_continues_over_attempts_without_losing_lines(api: FakeApi, fermi: Fermi) -> None:
    def answer(request: Request) -> Reply:
        attempt = int(request.query["attempt"])
        return lines(attempt, "c", f"from {attempt}", end=True)

    api.on("GET", TASK, task(1), task(3), task(3, ended=True))
    api.on("GET", LOGS, answer)
    texts = [line.text for line in fermi.tasks.logs("task-1", follow=True)]
    assert list(dict.fromkeys(texts)) == ["from 1", "from 2", "from 3"]


def test_following_one_attempt_ends_with_it(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", TASK, task(2))
    api.on("GET", LOGS, lines(1, "c1", "a", end=True))
    assert [line.text for line in fermi.tasks.logs("task-1", attempt=1, follow=True)] == ["a"]


def test_following_a_task_without_attempts_ends_with_it(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", TASK, task(0), task(0, ended=True))
    assert list(fermi.tasks.logs("task-1", follow=True)) == []


def test_following_survives_a_restart_of_the_platform(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", TASK, *[DROP] * 12, task(1, ended=True))
    api.on("GET", LOGS, *[DROP] * 12, lines(1, "c1", "a", end=True))
    assert [line.text for line in fermi.tasks.logs("task-1", follow=True)] == ["a"]


def test_a_whole_log_is_downloaded_unchanged(api: FakeApi, fermi: Fermi) -> None:
    raw = "第一行\r\n\x00tail".encode()
    api.on("GET", f"{LOGS}/download", Reply(raw, headers={"Content-Type": "text/plain"}))
    assert b"".join(fermi.tasks.download_log("task-1", rank=2)) == raw


def test_waiting_ends_with_the_task(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", TASK, task(1), DROP, task(1, ended=True))
    assert fermi.tasks.wait("task-1")["endedAt"]


def test_waiting_ends_at_its_timeout(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", TASK, task(1))
    with pytest.raises(TimeoutError, match="task-1"):
        fermi.tasks.wait("task-1", timeout=0.05)
