import pytest

from fermi.client import Fermi, FermiError, NotFoundError, UnexpectedAnswerError, UnreachableError
from fermi.client.sse import Event
from tests.fakes.api import DROP, FakeApi, Reply, event, refused, stream

PATH = "/training-tasks/task-1/stream"
END = event("end", {}, "9")


def test_events_arrive_in_order_until_the_end(api: FakeApi, fermi: Fermi) -> None:
    api.on(
        "GET", PATH, stream(b": hello\n\n", event("status", {"status": "running"}, "1"), END, event("late", 0, "10"))
    )
    assert list(fermi.tasks.stream("task-1")) == [Event("status", {"status": "running"}, "1"), Event("end", {}, "9")]
    assert api.requests[0].query == {"logs": "none"}
    assert "Last-Event-ID" not in api.requests[0].headers


def test_a_broken_stream_resumes_after_the_last_complete_event(api: FakeApi, fermi: Fermi) -> None:
    half = event("event", {"n": 2}, "2")[:-6]
    api.on(
        "GET",
        PATH,
        stream(event("event", {"n": 1}, "1"), half, cut=True),
        DROP,
        refused(503, "DATABASE_UNAVAILABLE"),
        stream(event("event", {"n": 2}, "2"), END),
    )
    breaks: list[FermiError] = []
    events = list(fermi.tasks.stream("task-1", on_break=breaks.append))
    assert [item.id for item in events] == ["1", "2", "9"]
    assert [request.headers.get("Last-Event-ID") for request in api.requests] == [None, "1", "1", "1"]
    assert [type(error).__name__ for error in breaks] == ["UnreachableError", "UnreachableError", "ServerError"]


def test_a_stream_that_ends_early_is_reconnected(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", PATH, stream(event("event", {}, "1")), stream(END))
    assert [item.id for item in fermi.tasks.stream("task-1")] == ["1", "9"]


def test_an_earlier_stream_can_be_gone_on_with(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", PATH, stream(END))
    list(fermi.tasks.stream("task-1", last_event_id="7", logs="all"))
    assert api.requests[0].headers["Last-Event-ID"] == "7"
    assert api.requests[0].query == {"logs": "all"}


def test_a_refused_stream_is_not_retried(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", PATH, refused(404, "NOT_FOUND"))
    with pytest.raises(NotFoundError):
        list(fermi.tasks.stream("task-1"))
    assert len(api.requests) == 1


def test_a_page_that_is_no_event_stream_raises(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", PATH, Reply(b"<html>", headers={"Content-Type": "text/html"}))
    with pytest.raises(UnexpectedAnswerError):
        list(fermi.tasks.stream("task-1"))


def test_reconnecting_ends_after_the_limit(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", PATH, DROP)
    with pytest.raises(UnreachableError):
        list(fermi.tasks.stream("task-1", patience=0.0))


def test_metric_events_always_hold_a_list(api: FakeApi, fermi: Fermi) -> None:
    one, many = {"step": 1}, {"items": [{"step": 2}, {"step": 3}]}
    api.on("GET", PATH, stream(event("metric", one, "1"), event("metric", many, "2"), END))
    metrics = [item.data for item in fermi.tasks.stream("task-1") if item.kind == "metric"]
    assert metrics == [{"items": [one]}, many]


def test_comments_are_ignored_and_texts_are_unchanged(api: FakeApi, fermi: Fermi) -> None:
    text = "进度 1\u2028条\x85 \r 50%"
    raw = event("log", {"text": text}, "游标-1") + b": beat\r\n\r\nevent: x\r\ndata: [1,\r\ndata:2]\r\n\r\n"
    api.on("GET", PATH, stream(raw, END))
    events = list(fermi.tasks.stream("task-1"))
    assert events == [Event("log", {"text": text}, "游标-1"), Event("x", [1, 2], "游标-1"), Event("end", {}, "9")]
