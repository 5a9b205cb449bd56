"""A task's live stream: what changed, in order, and from where to go on when the connection breaks.

The database (and the logs) are asked what is new since the last answer (see `looks`); a message on the bus only says
that asking is worth while now. Nothing is remembered between answers but a few positions, and the last level and time
of each log: a slow reader costs no memory, and a reader that comes back with its last position misses nothing and sees
nothing twice.

Streams wait for moments that all of them share, so that they ask together.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

from apps.accounts.access import Reader
from apps.accounts.models import User
from apps.common import pubsub
from apps.common.bounds import MAX_STREAMS
from apps.common.open_connections import Open
from apps.training.presenters import stream_polling
from apps.training.presenters.stream_polling import Position, Question, Rest, message

COALESCE = 0.1  # seconds between two answers to the same reader while much happens
POLL = 1.0  # seconds between two looks at the database while the broker is away
PATIENCE = 10.0  # seconds without a message until the database is asked all the same
BEAT = 2.0  # seconds of silence until a reader is told that the platform is alive

OPEN = Open(MAX_STREAMS, "STREAMS_TOO_MANY")


async def stream(task_id: str, user: User, resume: str, ranks: str, lang: str) -> AsyncIterator[bytes]:
    """`ranks`: `none`, `all` or one rank whose log lines are sent along. Ends when the task is final and all is sent,
    or `user` may not see it any more."""
    reader = Reader(user.pk, user.is_superuser)
    question = Question(task_id, reader, lang, ranks, Position.parse(resume) or Position())
    known: stream_polling.Known = {}
    yield b"retry: 1000\n\n"
    with OPEN.one(user.pk):
        async with pubsub.subscribe(f"task:{task_id}") as inbox:
            while True:
                answer = await stream_polling.ask(question, known)
                question, known = replace(question, position=answer.position), answer.known
                if answer.body:
                    yield answer.body
                if answer.rest is Rest.NOTHING:
                    yield message("end", {}, answer.position)
                    return
                if answer.rest is Rest.MORE:
                    continue
                if answer.body:
                    await asyncio.sleep(_until_next(COALESCE))
                async for beat in _silence(inbox, answer.again, ranks):
                    yield beat
                inbox.clear()


async def _silence(inbox: pubsub.Inbox, again: float, ranks: str) -> AsyncIterator[bytes]:
    """Until it is worth while to look at the database again. The signs of life in between ask nobody anything, and bear
    no position: a page that hears none knows that what it shows is old."""
    look_at = time.monotonic() + min(_until_next(PATIENCE if inbox.connected else POLL), again)
    while (left := look_at - time.monotonic()) > 0:
        hint = await inbox.get(timeout=min(left, BEAT))
        if hint is None:
            yield b"event: beat\ndata: {}\n\n"
        elif ranks != "none" or hint.get("kind") != "log":
            return


def _until_next(period: float) -> float:
    """Seconds to the next of the moments that many a `period` apart."""
    return period - time.monotonic() % period
