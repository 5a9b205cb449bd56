"""A task's live stream and the pages of its logs, on real log files."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction

from apps.accounts.models import Membership, User
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.training.core import transitions
from apps.training.logs import pages as logs
from apps.training.models import Event, MetricPoint, Task
from apps.training.presenters import event_stream, selectors, stream_polling
from apps.training.states import TaskState
from tests.apps.attempts import begin_attempt, write

pytestmark = pytest.mark.django_db(transaction=True)


def finish(task: Task, state: TaskState = TaskState.SUCCEEDED) -> None:
    task.attempts.update(ended_at=now())
    Task.objects.filter(pk=task.pk).update(state=state, due_at=None, ended_at=now())


def add_event(task: Task, code: str = "STOP_REQUESTED") -> int:
    return Event.objects.create(task=task, at=now(), kind="state", code=code, params={"by": "x"}).pk


def add_point(task: Task, step: int) -> int:
    at = datetime(2026, 11, 21, tzinfo=UTC)
    return MetricPoint.objects.create(task=task, attempt=1, rank=0, step=step, at=at, values={"loss": 1.0}).pk


class Sent:
    """One message as it came over the wire."""

    def __init__(self, raw: bytes) -> None:
        fields = dict(line.split(": ", 1) for line in raw.decode().strip().split("\n"))
        self.id, self.kind = fields["id"], fields["event"]
        self.data = orjson.loads(fields["data"])

    @property
    def lines(self) -> list[str]:
        return [line["text"] for line in self.data["lines"]]


def listen(
    task: Task, user: User, *, resume: str = "", ranks: str = "none", until: Callable[[list[Sent]], bool] | None = None
) -> list[Sent]:
    """Messages until the stream ends, or `until` is content; then the reader goes away."""

    async def main() -> list[Sent]:
        heard: list[Sent] = []
        body = event_stream.stream_task(task.pk, user, resume, ranks, "en")
        try:
            async with asyncio.timeout(60):
                async for part in body:
                    for raw in part.split(b"\n\n")[:-1]:
                        if not raw.startswith((b"retry", b"event: beat")):
                            heard.append(Sent(raw))
                            if until and until(heard):
                                return heard
        finally:
            await body.aclose()  # type: ignore[attr-defined]
            await sync_to_async(connections.close_all)()
        return heard

    return asyncio.run(main())


def test_keepalives_of_a_silent_stream_make_no_query(task: Task, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    answers = stream_polling.poll_requests
    monkeypatch.setattr(event_stream, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(event_stream, "MAX_SILENCE_SECONDS", 3600.0)
    monkeypatch.setattr(event_stream, "POLL_SECONDS", 3600.0)
    monkeypatch.setattr(stream_polling, "poll_requests", lambda given: (asked.append(given), answers(given))[1])

    async def beats() -> int:
        count = 0
        body = event_stream.stream_task(task.pk, user, "", "none", "en")
        async with asyncio.timeout(60):
            async for part in body:
                count += part == b"event: beat\ndata: {}\n\n"
                if count == 20:
                    break
        await body.aclose()  # type: ignore[attr-defined]
        await sync_to_async(connections.close_all)()
        return count

    assert asyncio.run(beats()) == 20
    assert len(asked) == 1


def logged(sent: list[Sent]) -> list[str]:
    return [text for message in sent if message.kind == "log" for text in message.lines]


def test_the_stream_of_an_ended_task_sends_everything_in_order_and_ends(task: Task, user: User) -> None:
    events, points = [add_event(task) for _ in range(3)], [add_point(task, step) for step in (1, 2)]
    write(task, "one\ntwo\nlast without line feed")
    finish(task)
    sent = listen(task, user, ranks="0")
    assert [message.kind for message in sent] == ["status", "event", "event", "event", "metric", "log", "end"]
    assert (sent[0].data["status"], sent[0].data["taskId"]) == ("succeeded", task.pk)
    assert "delete" in sent[0].data["allowedActions"]
    assert [message.data["id"] for message in sent[1:4]] == events
    assert sent[1].data["message"]
    assert [point["id"] for point in sent[4].data["items"]] == points
    assert sent[5].data == {
        "rank": 0,
        "attempt": 1,
        "lines": [
            {"offset": 0, "text": "one"},
            {"offset": 4, "text": "two"},
            {"offset": 8, "text": "last without line feed"},
        ],
    }


@pytest.mark.parametrize("heard", range(7))
def test_a_stream_resumes_after_any_break_without_loss_or_duplicates(task: Task, user: User, heard: int) -> None:
    for _ in range(2):
        add_event(task)
    add_point(task, 1)
    for rank in range(3):
        write(task, f"first of {rank}\n", rank=rank)
    finish(task)
    whole = listen(task, user, ranks="all")
    assert len(whole) == 8
    rest = listen(task, user, ranks="all", resume=whole[heard].id)
    assert [(m.kind, m.data) for m in rest] == [(m.kind, m.data) for m in whole[heard + 1 :]]


def test_a_returning_reader_gets_what_happened_meanwhile(task: Task, user: User) -> None:
    write(task, "before\n")
    first = listen(task, user, ranks="0", until=lambda sent: bool(logged(sent)))
    event, point = add_event(task), add_point(task, 5)
    write(task, "after\n")
    finish(task)
    rest = listen(task, user, ranks="0", resume=first[-1].id)
    assert [message.kind for message in rest] == ["status", "event", "metric", "log", "end"]
    assert (rest[1].data["id"], rest[2].data["items"][0]["id"], rest[3].lines) == (event, point, ["after"])


def test_the_last_lines_of_an_attempt_come_before_the_next_attempt(task: Task, user: User) -> None:
    write(task, "a\n")
    first = listen(task, user, ranks="0", until=lambda sent: bool(logged(sent)))
    write(task, "b\nTraceback: it broke")
    begin_attempt(task, 2)
    write(task, "c\n", attempt=2)
    begin_attempt(task, 3)
    write(task, "d\n", attempt=3)
    finish(task)
    rest = [message for message in listen(task, user, ranks="0", resume=first[-1].id) if message.kind == "log"]
    assert [(message.data["attempt"], message.lines) for message in rest] == [
        (1, ["b", "Traceback: it broke"]),
        (2, ["c"]),
        (3, ["d"]),
    ]


def test_a_new_reader_gets_the_newest_attempts_last_lines(
    task: Task, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_polling, "MAX_LINES", 3)
    write(task, "old\n")
    begin_attempt(task, 2)
    write(task, "".join(f"{n}\n" for n in range(10)), attempt=2)
    finish(task)
    assert logged(listen(task, user, ranks="0")) == ["7", "8", "9"]


def test_an_early_reader_gets_all_lines_of_the_first_attempt(
    task: Task, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_polling, "MAX_LINES", 3)
    task.attempts.all().delete()
    Task.objects.update(attempt=0)
    first = listen(task, user, ranks="0", until=lambda sent: True)
    begin_attempt(task, 1)
    write(task, "".join(f"{n}\n" for n in range(10)))
    finish(task)
    assert logged(listen(task, user, ranks="0", resume=first[-1].id)) == [str(n) for n in range(10)]


def test_streamed_lines_inherit_level_and_time(task: Task, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """From message to message, and for a reader who comes back to the middle of a traceback."""
    monkeypatch.setattr(stream_polling, "MAX_LINES", 1)
    write(task, "quiet\n")
    first = listen(task, user, ranks="0", until=lambda sent: sent[-1].kind == "log")
    write(task, "quiet\n2026-11-22 10:00:00 ERROR bad\nTraceback (most recent call last):\n  File x\nV: y\n")
    finish(task)
    sent = [one for one in listen(task, user, ranks="0", resume=first[-1].id) if one.kind == "log"]
    shown = [line.get("level", "") + line.get("time", "")[-14:-6] for one in sent for line in one.data["lines"]]
    assert shown == ["", *["error10:00:00"] * 4]
    again = [one for one in listen(task, user, ranks="0", resume=sent[3].id) if one.kind == "log"]
    assert [one.data["lines"] for one in again] == [sent[4].data["lines"]]


def test_a_progress_bar_is_sent_at_each_change_and_once_at_its_end(task: Task, user: User) -> None:
    """Also to who comes back, from where that was."""

    def lines(sent: list[Sent]) -> list[tuple[str, bool]]:
        shown = [line for one in sent if one.kind == "log" for line in one.data["lines"]]
        return [(line["text"], line.get("open", False)) for line in shown]

    def grow(sent: list[Sent]) -> bool:
        if lines(sent)[-1:] == [(" 2%", True)]:
            write(task, "\r 3%")
        return lines(sent)[-1:] == [(" 3%", True)]

    write(task, "begin\n\r 1%\r 2%")
    first = listen(task, user, ranks="0", until=grow)
    assert lines(first) == [("begin", False), (" 2%", True), (" 3%", True)]
    write(task, "\r 100%\nend\n")
    finish(task)
    assert lines(listen(task, user, ranks="0", resume=first[-1].id)) == [(" 100%", False), ("end", False)]


def test_a_backlog_is_sent_in_pieces(task: Task, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_polling, "MAX_BATCH_ROWS", 4)
    points, events = [add_point(task, step) for step in range(10)], [add_event(task) for _ in range(9)]
    finish(task)
    sent = listen(task, user)
    pieces = [[point["id"] for point in message.data["items"]] for message in sent if message.kind == "metric"]
    assert [len(piece) for piece in pieces] == [4, 4, 2]
    assert [key for piece in pieces for key in piece] == points
    assert [message.data["id"] for message in sent if message.kind == "event"] == events


def test_a_status_is_sent_only_when_it_changed(task: Task, user: User) -> None:
    first = listen(task, user, until=lambda sent: True)
    add_event(task)
    again = listen(task, user, resume=first[-1].id, until=lambda sent: True)
    assert [message.kind for message in first + again] == ["status", "event"]
    finish(task)
    rest = listen(task, user, resume=again[-1].id)
    assert [(message.kind, message.data.get("status")) for message in rest] == [("status", "succeeded"), ("end", None)]


def test_without_a_broker_changes_are_found_by_polling(task: Task, user: User) -> None:
    def act(sent: list[Sent]) -> bool:
        if len(sent) == 1:
            asyncio.get_running_loop().run_in_executor(None, finish, task)
        return False

    assert [message.kind for message in listen(task, user, until=act)] == ["status", "status", "end"]


@pytest.mark.database
def test_events_are_in_the_order_of_their_ids(task: Task) -> None:
    """A reader who remembers the last id would never see one that appears behind it."""
    start = threading.Barrier(4)

    def write_many() -> None:
        start.wait()
        try:
            for _ in range(40):
                with transaction.atomic():
                    transitions.record_event(task.pk, 1, "state", "STOP_REQUESTED", {"by": "x"})
                    list(Task.objects.values_list("pk"))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write_many) for _ in range(3)]
        start.wait()
        seen: list[int] = []
        while True:
            over = all(writer.done() for writer in writers)
            seen += [row["id"] for row in selectors.query_events(task.pk, seen[-1] if seen else 0)]
            if over:
                break
        for writer in writers:
            writer.result()
    assert len(seen) == 120


def test_a_reader_without_access_gets_nothing_more(task: Task, user: User) -> None:
    add_event(task)
    Membership.objects.all().delete()
    assert [message.kind for message in listen(task, user)] == ["end"]


def test_the_stream_of_a_deleted_task_ends(task: Task, user: User) -> None:
    Task.objects.all().delete()
    assert [message.kind for message in listen(task, user)] == ["end"]


@pytest.mark.parametrize(
    "text", ["", "x", "1.2.3", "1.2.3.4.x", "-1.0.0.0.", "1.1.1.1.0:99999999999999999999", "1.2.3.4.5"]
)
def test_an_invalid_event_id_starts_from_the_beginning(task: Task, user: User, text: str) -> None:
    finish(task)
    assert listen(task, user, resume=text)[0].kind == "status"


# Pages of logs --------------------------------------------------------------------------------------------------------


def read_log_page(task: Task, **query: Any) -> dict[str, Any]:
    return logs.read_page(task, {"rank": "0", "limit": 500, "tail": False, "search": "", **query})


def texts(page: dict[str, Any]) -> list[str]:
    return [line["text"] for line in page["lines"]]


def test_log_pages_have_no_gap_or_overlap(task: Task) -> None:
    written = [f"line {n} ä" for n in range(25)]
    write(task, "".join(f"{line}\n" for line in written))
    page, found = read_log_page(task, limit=10), []
    while True:
        found += texts(page)
        if page["end"]:
            break
        page = read_log_page(task, limit=10, cursor=page["cursor"])
    assert found == written
    write(task, "one more\n")
    assert texts(read_log_page(task, cursor=page["cursor"])) == ["one more"]


def test_half_a_line_is_held_back_until_it_is_complete(task: Task) -> None:
    write(task, "whole\nha")
    page = read_log_page(task)
    assert (texts(page), page["end"]) == (["whole"], True)
    write(task, "lf\nend")
    page = read_log_page(task, cursor=page["cursor"])
    assert texts(page) == ["half"]
    finish(task)
    assert texts(read_log_page(task, cursor=page["cursor"])) == ["end"]


def test_an_endless_line_is_cut_and_its_bytes_are_read_once(task: Task) -> None:
    write(task, "x" * (logs.MAX_LINE_BYTES * 2) + "\nafter\n")
    page = read_log_page(task)
    assert texts(page)[-1] == "after"
    assert max(map(len, texts(page))) == logs.MAX_LINE_BYTES


def test_a_cursor_stays_in_its_attempt(task: Task) -> None:
    write(task, "a\nb\n")
    page = read_log_page(task, limit=1)
    begin_attempt(task, 2)
    write(task, "c\nd\n", attempt=2)
    assert texts(read_log_page(task, cursor=page["cursor"])) == ["b"]
    assert texts(read_log_page(task, cursor=page["cursor"], attempt=2)) == ["c", "d"]
    assert texts(read_log_page(task)) == ["c", "d"]


def test_all_ranks_are_paged_fairly_to_their_ends(task: Task) -> None:
    for rank in range(3):
        write(task, "".join(f"{rank}-{n}\n" for n in range(2 + rank)), rank=rank)
    page = read_log_page(task, rank="all", limit=6)
    assert texts(page) == ["0-0", "0-1", "1-0", "1-1", "2-0", "2-1"]
    assert not page["end"]
    page = read_log_page(task, rank="all", limit=9, cursor=page["cursor"])
    assert [(line["rank"], line["text"]) for line in page["lines"]] == [(1, "1-2"), (2, "2-2"), (2, "2-3")]
    assert page["end"]


def test_search_ignores_case_and_continues_on_the_next_page(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PIECE_BYTES", logs.MAX_LINE_BYTES * 2)
    monkeypatch.setattr(logs, "MAX_SCAN_BYTES", 1)
    write(task, "quiet\n" * 50_000 + "An ERROR here\n" + "quiet\n" * 50_000)
    found, page, pages = [], read_log_page(task, search="error"), 1
    while not page["end"]:
        found += texts(page)
        page, pages = read_log_page(task, search="error", cursor=page["cursor"]), pages + 1
    assert found == ["An ERROR here"]
    assert pages > 2


def test_the_tail_returns_the_last_lines_and_a_cursor(task: Task) -> None:
    write(task, "".join(f"{n}\n" for n in range(5000)))
    page = read_log_page(task, tail=True, limit=3)
    assert texts(page) == ["4997", "4998", "4999"]
    write(task, "next\n")
    assert texts(read_log_page(task, tail=True, cursor=page["cursor"])) == ["next"]


@pytest.mark.parametrize("cursor", ["x", "1@x", "1@0:-5", "@", "1@0", "9" * 30 + "@0:1"])
def test_an_invalid_cursor_is_refused(task: Task, cursor: str) -> None:
    with pytest.raises(ApiError) as refused:
        read_log_page(task, cursor=cursor)
    assert refused.value.code == "CURSOR_INVALID"
    assert refused.value.problems[0].params == {"cursor": cursor}, "all of it, and not the part that did not fit"


@pytest.mark.parametrize("rank", ["3", "-1", "x", ""])
def test_an_unknown_rank_is_refused(task: Task, rank: str) -> None:
    with pytest.raises(ApiError) as refused:
        read_log_page(task, rank=rank)
    assert refused.value.code == "RANK_UNKNOWN"


def test_invalid_utf_8_is_replaced(task: Task, settings: Any) -> None:
    path = Path(settings.DATA_DIR, "logs", task.pk, "1", "0.log")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff\x00ok\r\n")
    assert texts(read_log_page(task)) == ["\ufffd\x00ok"]


def test_a_whole_log_is_read_in_pieces(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PIECE_BYTES", 7)
    write(task, "0123456789" * 5)
    assert b"".join(logs.LogPageReader(task, 1).iterate_log(0)).decode() == "0123456789" * 5
    assert list(logs.LogPageReader(task, 1).iterate_log(1)) == []
