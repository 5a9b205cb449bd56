"""What open streams ask, asked together."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from apps.accounts.access import UserRights
from apps.accounts.models import User
from apps.common.clock import now
from apps.training.logs import pages
from apps.training.models import Event, Task
from apps.training.presenters import stream_polling
from apps.training.presenters.stream_polling import PollAgain, StreamCursor, StreamMessages, StreamRequest
from tests.apps.attempts import write

pytestmark = pytest.mark.django_db(transaction=True)


def question(task: Task, user: User, ranks: str = "none", position: StreamCursor = StreamCursor()) -> StreamRequest:  # noqa: B008
    return StreamRequest(task.pk, UserRights(user.pk, user.is_superuser), "en", ranks, position)


def answered(*questions: StreamRequest) -> list[StreamMessages]:
    found = stream_polling.poll_requests([(one, {}) for one in questions])
    assert all(isinstance(one, StreamMessages) for one in found), found
    return [one for one in found if isinstance(one, StreamMessages)]


def ask_together(*questions: StreamRequest) -> list[StreamMessages]:
    async def main() -> list[StreamMessages]:
        try:
            return await asyncio.gather(*(stream_polling.poll_stream(one, {}) for one in questions))
        finally:
            await sync_to_async(connections.close_all)()

    return asyncio.run(main())


def copies(task: Task, count: int) -> list[Task]:
    for number in range(count):
        task.pk = f"task-copy-{number}"
        task.save(force_insert=True)
    return list(Task.objects.filter(pk__startswith="task-copy"))


@pytest.mark.database
def test_streams_of_many_tasks_share_one_statement(task: Task, user: User, django_assert_num_queries: Any) -> None:
    questions = [question(one, user) for one in copies(task, 40)]
    seen = [replace(one, position=found.position) for one, found in zip(questions, answered(*questions), strict=True)]
    assert all(one.position.status for one in seen)
    with django_assert_num_queries(1):
        assert [(one.body, one.rest) for one in answered(*seen)] == [(b"", PollAgain.LATER)] * 40
    Event.objects.create(
        task_id="task-copy-7", attempt=1, at=now(), kind="state", code="STOP_REQUESTED", params={"by": "x"}
    )
    assert [one.task for one, found in zip(seen, answered(*seen), strict=True) if found.body] == ["task-copy-7"]


def test_each_reader_gets_only_their_own_rows(task: Task, user: User, administrator: User) -> None:
    stranger = User.objects.create_user("stranger")
    mine, theirs, all_of_it = answered(*(question(task, one) for one in (user, stranger, administrator)))
    assert (theirs.body, theirs.rest) == (b"", PollAgain.NOTHING)
    assert mine.rest is all_of_it.rest is PollAgain.LATER
    assert task.pk.encode() in mine.body


def test_streams_at_the_same_position_get_the_same_bytes(
    task: Task, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    real = stream_polling.poll_requests

    def counted(given: Sequence[tuple[StreamRequest, stream_polling.KnownLevels]]) -> list[StreamMessages | Exception]:
        asked.append(len(given))
        return real(given)

    monkeypatch.setattr(stream_polling, "poll_requests", counted)
    found = ask_together(*[question(task, user)] * 100)
    assert asked == [1]
    assert len({id(one.body) for one in found}) == 1


def test_a_poll_during_another_sees_what_was_stored_meanwhile(
    task: Task, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, may_end, real = threading.Event(), threading.Event(), stream_polling.poll_requests

    def slow(given: Sequence[tuple[StreamRequest, stream_polling.KnownLevels]]) -> list[StreamMessages | Exception]:
        found = real(given)
        looked.set()
        assert may_end.wait(60)
        return found

    monkeypatch.setattr(stream_polling, "poll_requests", slow)

    def store() -> None:
        Event.objects.create(task=task, attempt=1, at=now(), kind="state", code="STOP_REQUESTED", params={"by": "x"})
        connections.close_all()

    async def main() -> tuple[StreamMessages, StreamMessages]:
        one = question(task, user)
        first = asyncio.create_task(stream_polling.poll_stream(one, {}))
        await asyncio.to_thread(looked.wait, 60)
        await asyncio.to_thread(store)
        second = asyncio.create_task(stream_polling.poll_stream(one, {}))
        await asyncio.sleep(0)
        may_end.set()
        try:
            return await first, await second
        finally:
            await sync_to_async(connections.close_all)()

    first, second = asyncio.run(main())
    assert b"STOP_REQUESTED" not in first.body
    assert b"STOP_REQUESTED" in second.body


def test_a_failing_reader_does_not_affect_others(task: Task, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any, **more: Any) -> Any:
        raise OSError("the disk is away")

    monkeypatch.setattr(pages.LogPageReader, "chunk", broken)
    [failed, fine] = stream_polling.poll_requests([(question(task, user, "all"), {}), (question(task, user), {})])
    assert isinstance(failed, OSError)
    assert isinstance(fine, StreamMessages)


def test_readers_of_a_growing_log_share_its_end(task: Task, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """From there on one of them is read for, and none gets a line twice or not at all."""
    write(task, "".join(f"{number}\n" for number in range(100)))
    [all_of_it] = answered(question(task, user, "0"))
    base = all_of_it.position
    real = pages.LogPageReader.page

    def growing(self: pages.LogPageReader, *given: Any, **more: Any) -> Any:
        found = real(self, *given, **more)
        write(task, "later\n")
        return found

    monkeypatch.setattr(pages.LogPageReader, "page", growing)
    places = [0, 2, 20, 290]
    found = answered(
        *(question(task, user, "0", replace(base, offsets=((0, pages.LogPosition(place)),))) for place in places)
    )
    assert len({one.position for one in found}) == 1
    assert [one.body.count(b'"text"') for one in found] == [100, 99, 90, 0]
    assert {one.rest for one in found} == {PollAgain.LATER}


def test_readers_of_a_growing_progress_bar_share_its_newest_state(
    task: Task, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(task, "begin\n" + "".join(f"\r {number}%" for number in range(50)))
    [all_of_it] = answered(question(task, user, "0"))
    base = all_of_it.position
    real = pages.LogPageReader.page

    def growing(self: pages.LogPageReader, *given: Any, **more: Any) -> Any:
        found = real(self, *given, **more)
        write(task, "\r grown")
        return found

    assert b'" 49%"' in all_of_it.body
    write(task, "\r 50%")
    monkeypatch.setattr(pages.LogPageReader, "page", growing)
    spots = [pages.LogPosition(), pages.LogPosition(6), pages.LogPosition(100), dict(base.offsets)[0]]
    found = answered(*(question(task, user, "0", replace(base, offsets=((0, spot),))) for spot in spots))
    assert len({one.position for one in found}) == 1
    assert [one.body.count(b'"open":true') for one in found] == [1, 1, 1, 1]
    assert all(b'" 50%"' in one.body for one in found)


@pytest.mark.parametrize("long", [10, 20_000])
def test_an_answer_is_bounded_and_everything_is_delivered(task: Task, user: User, long: int) -> None:
    lines = stream_polling.MAX_LOG_BYTES // long + 5
    for rank in range(3):
        write(task, ("x" * (long - 1) + "\n") * lines, rank=rank)
    [first] = answered(question(task, user, "all"))
    position, seen, most = replace(first.position, offsets=()), 0, 0
    while True:
        [found] = answered(question(task, user, "all", position))
        position, seen, most = found.position, seen + found.body.count(b'"text"'), max(most, len(found.body))
        if found.rest is PollAgain.LATER:
            break
    assert seen == 3 * lines
    assert most < 4 * stream_polling.MAX_LOG_BYTES
