"""A task's live stream: what changed, in order, and from where to go on when the connection breaks.

The database (and the logs) are asked what is new since the last answer; a message on the bus only says that asking is
worth while now. Nothing is remembered between answers but a few positions, and the last level and time of each log: a
slow reader costs no memory, and a reader that comes back with its last position misses nothing and sees nothing twice.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from asgiref.sync import sync_to_async

from apps.accounts.models import User
from apps.common import bus
from apps.common.encoding import encode
from apps.training.models import Task
from apps.training.output import logs
from apps.training.shown import presenters, selectors
from apps.training.states import FINAL, State

COALESCE = 0.1  # seconds between two answers to the same reader while much happens
POLL = 1.0  # seconds between two looks at the database while the broker is away
PATIENCE = 10.0  # seconds without a message until the database is asked all the same
BEAT = 2.0  # seconds of silence until a reader is told that the platform is alive
BATCH = 500  # points or events in one message
LINES = 1000  # log lines of one rank in one message, and how many of the last ones a new reader gets


@dataclass(frozen=True, slots=True)
class Position:
    """`id:` of each message: `<status hash>.<event id>.<metric id>.<attempt>.<log offsets>`."""

    status: int = 0
    event: int = 0
    metric: int = 0
    attempt: int = 0
    offsets: tuple[tuple[int, int], ...] = field(default=())

    def __str__(self) -> str:
        return f"{self.status}.{self.event}.{self.metric}.{self.attempt}.{logs.cursor_of(dict(self.offsets))}"

    @classmethod
    def parse(cls, text: str) -> "Position | None":
        """None for anything that is no position: the reader then starts anew."""
        parts = text.split(".")
        if len(parts) != 5 or not all(part.isdecimal() and len(part) < 19 for part in parts[:4]):
            return None
        try:
            offsets = logs.offsets_of(parts[4])
        except ValueError:
            return None
        status, event, metric, attempt = (int(part) for part in parts[:4])
        return cls(status, event, metric, attempt, tuple(offsets.items()))


@dataclass(frozen=True, slots=True)
class Message:
    name: str
    data: Any
    position: Position

    def encode(self) -> bytes:
        return b"id: %s\nevent: %s\ndata: %s\n\n" % (
            str(self.position).encode(), self.name.encode(), encode(self.data),
        )  # fmt: skip


async def stream(task_id: str, user: User, resume: str, ranks: str, lang: str) -> AsyncIterator[bytes]:
    """`ranks`: `none`, `all` or one rank whose log lines are sent along. Ends when the task is final and all is sent,
    or `user` may not see it any more."""
    position = Position.parse(resume) or Position()
    known: dict[int, logs.Known] = {}
    yield b"retry: 1000\n\n"
    async with bus.subscribe(f"task:{task_id}") as inbox:
        while True:
            messages, rest, again = await sync_to_async(_news)(task_id, user, position, ranks, lang, known)
            for message in messages:
                yield message.encode()
                position = message.position
            if rest is Rest.NOTHING:
                yield Message("end", {}, position).encode()
                return
            if rest is Rest.MORE:
                continue
            if messages:
                await asyncio.sleep(COALESCE)
            async for beat in _silence(inbox, again):
                yield beat
            inbox.clear()


async def _silence(inbox: bus.Inbox, again: float) -> AsyncIterator[bytes]:
    """Until it is worth while to look at the database again. The signs of life in between ask nobody anything, and bear
    no position: a page that hears none knows that what it shows is old."""
    look_at = time.monotonic() + min(PATIENCE if inbox.connected else POLL, again)
    while (left := look_at - time.monotonic()) > 0:
        if await inbox.get(timeout=min(left, BEAT)) is not None:
            return
        yield b"event: beat\ndata: {}\n\n"


class Rest(Enum):
    """What there is besides the messages just given: more at once, perhaps some later, or nothing ever."""

    MORE = "more"
    LATER = "later"
    NOTHING = "nothing"


def _news(
    task_id: str, user: User, position: Position, ranks: str, lang: str, known: dict[int, logs.Known] | None = None
) -> tuple[list[Message], Rest, float]:
    """What the reader at `position` has not seen, and in how many seconds there may be more without a message.
    `known`, by attempt: of which level and time the next lines are if they say none. It only saves looking back."""
    pulse = selectors.pulse(user, task_id, lang)
    if pulse is None:
        return [], Rest.NOTHING, math.inf
    messages: list[Message] = []
    newest_attempt = pulse.status["attempt"]
    if anew := position == Position():
        position = replace(position, attempt=newest_attempt)

    def send(name: str, data: Any, **moved: Any) -> None:
        nonlocal position
        position = replace(position, **moved)
        messages.append(Message(name, data, position))

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
    if ranks != "none" and newest_attempt:
        task = Task.objects.select_related("cluster").only("world_size", "cluster").get(pk=task_id)
        for attempt in range(max(position.attempt, 1), newest_attempt + 1):  # to the end of one, then the next
            if attempt != position.attempt:
                position = replace(position, attempt=attempt, offsets=())
            reader = logs.Reader(task, attempt, None if known is None else known.setdefault(attempt, {}))
            for rank, lines, offsets, end in _lines(reader, position, ranks, anew):
                send("log", {"rank": rank, "attempt": attempt, "lines": lines}, offsets=offsets)
                more |= not end
            if more:
                break
    if more:
        return messages, Rest.MORE, pulse.again
    return messages, Rest.NOTHING if State(pulse.status["status"]) in FINAL else Rest.LATER, pulse.again


def _lines(
    reader: logs.Reader, position: Position, ranks: str, anew: bool
) -> Iterator[tuple[int, list[dict[str, Any]], tuple[tuple[int, int], ...], bool]]:
    """New lines by rank, with all offsets as they are behind them. A reader that comes `anew` gets the last lines
    there are, and every line from there on."""
    offsets = dict(position.offsets)
    for rank in range(reader.task.world_size) if ranks == "all" else [int(ranks)]:
        begin = offsets.get(rank, 0)
        lines, offsets[rank], end = reader.tail(rank, LINES) if anew else reader.page(rank, begin, LINES)
        if offsets[rank] != begin:
            yield rank, [line.shown() for line in lines], tuple(offsets.items()), end
