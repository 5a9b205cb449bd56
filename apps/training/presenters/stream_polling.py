"""Polls what open streams have not sent yet, for all of them together.

A stream asks from its position. Streams that ask while a poll is running are answered by the next one: one statement
reads the newest state of all their tasks, and streams of the same task at the same position get the same bytes, made
once. So a thousand pages on one task cost as much as one, and pages on which nothing happens next to nothing. A poll
starts after it was requested, so it misses nothing that was stored by then.
"""

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Self
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async

from apps.accounts.access import UserRights
from apps.common.encoding import encode_json
from apps.training.logs import pages
from apps.training.models import Task
from apps.training.presenters import selectors, task_presenter
from apps.training.presenters.selectors import StreamState
from apps.training.states import FINAL_STATES, TaskState

MAX_BATCH_ROWS = 500  # points or events in one message
MAX_LINES = 1000  # log lines of one rank in one message, and how many of the last ones a new reader gets
MAX_LOG_BYTES = (
    1 << 18
)  # of the logs of all ranks in one answer, about: what a reader that takes nothing keeps in memory
MAX_FIRST_LOG_BYTES = 1 << 22  # the same of a new reader's first one
MAX_REQUESTS_PER_POLL = 250  # requests in one poll


@dataclass(frozen=True, slots=True)
class StreamCursor:
    """Position in a stream, the `id:` of each message: `<status hash>.<event id>.<metric id>.<attempt>.<log
    offsets>`."""

    status: int = 0
    event: int = 0
    metric: int = 0
    attempt: int = 0
    offsets: tuple[tuple[int, pages.LogPosition], ...] = field(default=())

    def __str__(self) -> str:
        return f"{self.status}.{self.event}.{self.metric}.{self.attempt}.{pages.format_offsets(dict(self.offsets))}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the position in the text; None if it is invalid: the reader then starts from the beginning."""
        parts = text.split(".")
        if len(parts) != 5 or not all(part.isdecimal() and len(part) < 19 for part in parts[:4]):
            return None
        try:
            offsets = pages.parse_offsets(parts[4])
        except ValueError:
            return None
        status, event, metric, attempt = (int(part) for part in parts[:4])
        return cls(status, event, metric, attempt, tuple(offsets.items()))


def format_message(name: str, data: Any, position: StreamCursor) -> bytes:
    """Return a message of the stream as bytes."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (str(position).encode(), name.encode(), encode_json(data))


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """A request for what is new of a task for `reader`. `ranks`: `none`, `all` or one rank whose log lines are
    included."""

    task: str
    reader: UserRights
    lang: str
    ranks: str
    position: StreamCursor


KnownLevels = dict[int, pages.LevelContexts]
"""Level contexts of the logs, by attempt. They only save reading back."""


class PollAgain(Enum):
    """Whether there is more: at once, perhaps later, or never."""

    MORE = "more"
    LATER = "later"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class StreamMessages:
    """Result of a poll. `body`: messages as they are sent; `again`: in how many seconds there may be more without a
    pub/sub message."""

    body: bytes
    position: StreamCursor
    rest: PollAgain
    again: float
    known_levels: KnownLevels


class StreamPoller:
    """Polls for the streams of one event loop."""

    def __init__(self) -> None:
        self._asked: dict[StreamRequest, tuple[asyncio.Future[StreamMessages], KnownLevels]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def poll(self, question: StreamRequest, known_levels: KnownLevels) -> StreamMessages:
        """Return what is new. Raises what the database or an engine raises."""
        if question not in self._asked:
            self._asked[question] = asyncio.get_running_loop().create_future(), known_levels
        future, _ = self._asked[question]
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        return await asyncio.shield(future)

    async def _look(self) -> None:
        try:
            while self._asked:
                questions = list(self._asked)[:MAX_REQUESTS_PER_POLL]
                asked = [self._asked.pop(question) for question in questions]
                found = await sync_to_async(poll_requests)(
                    [(question, asked[n][1]) for n, question in enumerate(questions)]
                )
                for (future, _), answer in zip(asked, found, strict=True):
                    if isinstance(answer, StreamMessages):
                        future.set_result(answer)
                    else:
                        future.set_exception(answer)
                        future.exception()  # marks it as retrieved: the stream that asked may be gone
        finally:
            self._looking = None


_pollers: WeakKeyDictionary[asyncio.AbstractEventLoop, StreamPoller] = WeakKeyDictionary()


async def poll_stream(request: StreamRequest, levels: KnownLevels) -> StreamMessages:
    """Return what is new, by the poller of the running event loop."""
    return await _pollers.setdefault(asyncio.get_running_loop(), StreamPoller()).poll(request, levels)


LogEnds = dict[tuple[str, int, int], int]
"""How far a poll reads a log (task, attempt, rank), once one request has read to its end: all readers are at the same
position afterwards, and are answered as one from there on."""


def poll_requests(requests: Sequence[tuple[StreamRequest, KnownLevels]]) -> list[StreamMessages | Exception]:
    """Return the answer or the exception for each request, from one poll."""
    try:
        pulses = _read_states(question for question, _ in requests)
    except Exception as error:
        return [error] * len(requests)
    ends: LogEnds = {}
    found: list[StreamMessages | Exception] = []
    for question, known in requests:
        try:
            pulse = pulses.get((question.reader, question.lang, question.task))
            found.append(_build_messages(question, pulse, known, ends))
        except Exception as error:
            found.append(error)
    return found


def _read_states(requests: Iterable[StreamRequest]) -> Mapping[tuple[UserRights, str, str], StreamState]:
    """Return the states by reader, language and task, with one statement for each reader."""
    asked: dict[tuple[UserRights, str], set[str]] = {}
    for question in requests:
        asked.setdefault((question.reader, question.lang), set()).add(question.task)
    return {
        (reader, lang, task): pulse
        for (reader, lang), tasks in asked.items()
        for task, pulse in selectors.read_stream_states(reader, tasks, lang).items()
    }


def _build_messages(
    request: StreamRequest, state: StreamState | None, levels: KnownLevels, ends: LogEnds
) -> StreamMessages:
    position, task_id, lang = request.position, request.task, request.lang
    if state is None:
        return StreamMessages(b"", position, PollAgain.NOTHING, math.inf, levels)
    newest_attempt = state.status["attempt"]
    if anew := position == StreamCursor():
        position = replace(position, attempt=newest_attempt)
    messages: list[bytes] = []

    def send(name: str, data: Any, **moved: Any) -> None:
        nonlocal position
        position = replace(position, **moved)
        messages.append(format_message(name, data, position))

    if state.fingerprint != position.status:
        send("status", state.status, status=state.fingerprint)
    events = (
        list(selectors.query_events(task_id, position.event)[:MAX_BATCH_ROWS]) if state.event > position.event else []
    )
    for row in events:
        send("event", task_presenter.serialize_event(row, lang), event=row["id"])
    more = len(events) == MAX_BATCH_ROWS
    if state.metric > position.metric:
        page = selectors.read_points(task_id, {"after": position.metric, "limit": MAX_BATCH_ROWS})
        more |= page.more
        if page.points:
            send("metric", {"items": page.points}, metric=page.last)
        else:  # of patterns that are switched off
            position = replace(position, metric=max(page.last, position.metric))
    if request.ranks != "none" and newest_attempt:
        task = Task.objects.select_related("cluster").only("world_size", "cluster").get(pk=task_id)
        for attempt in range(max(position.attempt, 1), newest_attempt + 1):  # to the end of one, then the next
            if attempt != position.attempt:
                position = replace(position, attempt=attempt, offsets=())
            reader = pages.LogPageReader(task, attempt, levels.setdefault(attempt, {}))
            for rank, lines, offsets, end in _read_lines(reader, position, request.ranks, anew, ends):
                send("log", {"rank": rank, "attempt": attempt, "lines": lines}, offsets=offsets)
                more |= not end
            if more:
                break
    final = TaskState(state.status["status"]) in FINAL_STATES
    rest = PollAgain.MORE if more else PollAgain.NOTHING if final else PollAgain.LATER
    return StreamMessages(b"".join(messages), position, rest, state.again, levels)


def _read_lines(
    reader: pages.LogPageReader, position: StreamCursor, ranks: str, is_new: bool, ends: LogEnds
) -> Iterator[tuple[int, list[dict[str, Any]], tuple[tuple[int, pages.LogPosition], ...], bool]]:
    """Yield new lines by rank, with all offsets as they are after them. A reader that `is_new` gets the last lines, and
    every line from there on."""
    offsets = dict(position.offsets)
    wanted = range(reader.task.world_size) if ranks == "all" else [int(ranks)]
    share = max(1, (MAX_FIRST_LOG_BYTES if is_new else MAX_LOG_BYTES) // len(wanted))
    for rank in wanted:
        begin, log = offsets.get(rank, pages.LogPosition()), (reader.task.pk, reader.attempt, rank)
        if is_new:
            lines, offsets[rank], end = reader.tail(rank, MAX_LINES, scan=share)
        else:
            lines, offsets[rank], end = reader.page(rank, begin, MAX_LINES, scan=share, stop=ends.get(log))
        if end:
            ends.setdefault(log, offsets[rank].shown_end)
        if offsets[rank] != begin:
            yield rank, [line.serialize() for line in lines], tuple(offsets.items()), end
