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

from apps.accounts.access import Reader
from apps.common.encoding import encode
from apps.training.logs import pages
from apps.training.models import Task
from apps.training.presenters import selectors
from apps.training.presenters import task_presenter as presenters
from apps.training.presenters.selectors import Pulse
from apps.training.states import FINAL, State

BATCH = 500  # points or events in one message
LINES = 1000  # log lines of one rank in one message, and how many of the last ones a new reader gets
BYTES = 1 << 18  # of the logs of all ranks in one answer, about: what a reader that takes nothing keeps in memory
FIRST_BYTES = 1 << 22  # the same of a new reader's first one
SLICE = 250  # requests in one poll


@dataclass(frozen=True, slots=True)
class Position:
    """Position in a stream, the `id:` of each message: `<status hash>.<event id>.<metric id>.<attempt>.<log
    offsets>`."""

    status: int = 0
    event: int = 0
    metric: int = 0
    attempt: int = 0
    offsets: tuple[tuple[int, pages.Spot], ...] = field(default=())

    def __str__(self) -> str:
        return f"{self.status}.{self.event}.{self.metric}.{self.attempt}.{pages.cursor_of(dict(self.offsets))}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the position in the text; None if it is invalid: the reader then starts from the beginning."""
        parts = text.split(".")
        if len(parts) != 5 or not all(part.isdecimal() and len(part) < 19 for part in parts[:4]):
            return None
        try:
            offsets = pages.offsets_of(parts[4])
        except ValueError:
            return None
        status, event, metric, attempt = (int(part) for part in parts[:4])
        return cls(status, event, metric, attempt, tuple(offsets.items()))


def message(name: str, data: Any, position: Position) -> bytes:
    """Return a message of the stream as bytes."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (str(position).encode(), name.encode(), encode(data))


@dataclass(frozen=True, slots=True)
class Question:
    """A request for what is new of a task for `reader`. `ranks`: `none`, `all` or one rank whose log lines are
    included."""

    task: str
    reader: Reader
    lang: str
    ranks: str
    position: Position


Known = dict[int, pages.Known]
"""Level contexts of the logs, by attempt. They only save reading back."""


class Rest(Enum):
    """Whether there is more: at once, perhaps later, or never."""

    MORE = "more"
    LATER = "later"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a poll. `body`: messages as they are sent; `again`: in how many seconds there may be more without a
    pub/sub message."""

    body: bytes
    position: Position
    rest: Rest
    again: float
    known: Known


class Looks:
    """Polls for the streams of one event loop."""

    def __init__(self) -> None:
        self._asked: dict[Question, tuple[asyncio.Future[Answer], Known]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def ask(self, question: Question, known: Known) -> Answer:
        """Return what is new. Raises what the database or an engine raises."""
        if question not in self._asked:
            self._asked[question] = asyncio.get_running_loop().create_future(), known
        future, _ = self._asked[question]
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        return await asyncio.shield(future)

    async def _look(self) -> None:
        try:
            while self._asked:
                questions = list(self._asked)[:SLICE]
                asked = [self._asked.pop(question) for question in questions]
                found = await sync_to_async(answers)([(question, asked[n][1]) for n, question in enumerate(questions)])
                for (future, _), answer in zip(asked, found, strict=True):
                    if isinstance(answer, Answer):
                        future.set_result(answer)
                    else:
                        future.set_exception(answer)
                        future.exception()  # marks it as retrieved: the stream that asked may be gone
        finally:
            self._looking = None


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Looks] = WeakKeyDictionary()


async def ask(question: Question, known: Known) -> Answer:
    """Return what is new, by the poller of the running event loop."""
    return await _of_loops.setdefault(asyncio.get_running_loop(), Looks()).ask(question, known)


Ends = dict[tuple[str, int, int], int]
"""How far a poll reads a log (task, attempt, rank), once one request has read to its end: all readers are at the same
position afterwards, and are answered as one from there on."""


def answers(asked: Sequence[tuple[Question, Known]]) -> list[Answer | Exception]:
    """Return the answer or the exception for each request, from one poll."""
    try:
        pulses = _pulses(question for question, _ in asked)
    except Exception as error:
        return [error] * len(asked)
    ends: Ends = {}
    found: list[Answer | Exception] = []
    for question, known in asked:
        try:
            pulse = pulses.get((question.reader, question.lang, question.task))
            found.append(_answer(question, pulse, known, ends))
        except Exception as error:
            found.append(error)
    return found


def _pulses(questions: Iterable[Question]) -> Mapping[tuple[Reader, str, str], Pulse]:
    """Return the states by reader, language and task, with one statement for each reader."""
    asked: dict[tuple[Reader, str], set[str]] = {}
    for question in questions:
        asked.setdefault((question.reader, question.lang), set()).add(question.task)
    return {
        (reader, lang, task): pulse
        for (reader, lang), tasks in asked.items()
        for task, pulse in selectors.pulses(reader, tasks, lang).items()
    }


def _answer(question: Question, pulse: Pulse | None, known: Known, ends: Ends) -> Answer:
    position, task_id, lang = question.position, question.task, question.lang
    if pulse is None:
        return Answer(b"", position, Rest.NOTHING, math.inf, known)
    newest_attempt = pulse.status["attempt"]
    if anew := position == Position():
        position = replace(position, attempt=newest_attempt)
    messages: list[bytes] = []

    def send(name: str, data: Any, **moved: Any) -> None:
        nonlocal position
        position = replace(position, **moved)
        messages.append(message(name, data, position))

    if pulse.fingerprint != position.status:
        send("status", pulse.status, status=pulse.fingerprint)
    events = list(selectors.events(task_id, position.event)[:BATCH]) if pulse.event > position.event else []
    for row in events:
        send("event", presenters.event(row, lang), event=row["id"])
    points = []
    if pulse.metric > position.metric:
        points = selectors.metrics(task_id, {"after": position.metric, "limit": BATCH})["items"]
    if points:
        send("metric", {"items": points}, metric=points[-1]["id"])
    more = len(events) == BATCH or len(points) == BATCH
    if question.ranks != "none" and newest_attempt:
        task = Task.objects.select_related("cluster").only("world_size", "cluster").get(pk=task_id)
        for attempt in range(max(position.attempt, 1), newest_attempt + 1):  # to the end of one, then the next
            if attempt != position.attempt:
                position = replace(position, attempt=attempt, offsets=())
            reader = pages.Reader(task, attempt, known.setdefault(attempt, {}))
            for rank, lines, offsets, end in _lines(reader, position, question.ranks, anew, ends):
                send("log", {"rank": rank, "attempt": attempt, "lines": lines}, offsets=offsets)
                more |= not end
            if more:
                break
    final = State(pulse.status["status"]) in FINAL
    rest = Rest.MORE if more else Rest.NOTHING if final else Rest.LATER
    return Answer(b"".join(messages), position, rest, pulse.again, known)


def _lines(
    reader: pages.Reader, position: Position, ranks: str, anew: bool, ends: Ends
) -> Iterator[tuple[int, list[dict[str, Any]], tuple[tuple[int, pages.Spot], ...], bool]]:
    """Yield new lines by rank, with all offsets as they are after them. A reader that `is_new` gets the last lines, and
    every line from there on."""
    offsets = dict(position.offsets)
    wanted = range(reader.task.world_size) if ranks == "all" else [int(ranks)]
    share = max(1, (FIRST_BYTES if anew else BYTES) // len(wanted))
    for rank in wanted:
        begin, log = offsets.get(rank, pages.Spot()), (reader.task.pk, reader.attempt, rank)
        if anew:
            lines, offsets[rank], end = reader.tail(rank, LINES, scan=share)
        else:
            lines, offsets[rank], end = reader.page(rank, begin, LINES, scan=share, stop=ends.get(log))
        if end:
            ends.setdefault(log, offsets[rank].end)
        if offsets[rank] != begin:
            yield rank, [line.shown() for line in lines], tuple(offsets.items()), end
