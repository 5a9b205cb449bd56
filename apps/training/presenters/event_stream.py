"""Sends a task's live stream (Server-Sent Events): what changed, in order, with the position to resume from.

The database and the logs are polled for what is new since the last message (see `stream_polling`); a pub/sub message
only says when polling is worthwhile. Nothing is kept between polls but a few positions, and the last level and time of
each log: a slow reader costs no memory, and a reader that reconnects with its last position misses nothing and gets
nothing twice.

Streams wait for common moments, so that they poll together.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

from apps.accounts import access
from apps.accounts.models import User
from apps.common import pubsub
from apps.common.bounds import MAX_STREAMS
from apps.common.open_connections import ConnectionLimit
from apps.training.presenters import stream_polling
from apps.training.presenters.stream_polling import PollAgain, StreamCursor, StreamRequest, format_message

COALESCE_SECONDS = 0.1  # seconds between two answers to the same reader while much happens
POLL_SECONDS = 1.0  # seconds between two polls of the database while the broker is unavailable
MAX_SILENCE_SECONDS = 10.0  # seconds without a message until the database is polled all the same
HEARTBEAT_SECONDS = 2.0  # seconds of silence until a heartbeat is sent

OPEN_STREAMS = ConnectionLimit(MAX_STREAMS, "STREAMS_TOO_MANY")


async def stream_task(task_id: str, user: User, resume: str, ranks: str, lang: str) -> AsyncIterator[bytes]:
    """Yield the messages of the task's stream. `ranks`: `none`, `all` or one rank whose log lines are included. Ends
    when the task is final and everything is sent, or `user` may no longer see it."""
    reader = access.get_rights(user)
    question = StreamRequest(task_id, reader, lang, ranks, StreamCursor.parse(resume) or StreamCursor())
    known: stream_polling.KnownLevels = {}
    yield b"retry: 1000\n\n"
    with OPEN_STREAMS.one(user.pk):
        async with pubsub.subscribe_to(f"task:{task_id}") as inbox:
            while True:
                answer = await stream_polling.poll_stream(question, known)
                question, known = replace(question, position=answer.position), answer.known_levels
                if answer.body:
                    yield answer.body
                if answer.rest is PollAgain.NOTHING:
                    yield format_message("end", {}, answer.position)
                    return
                if answer.rest is PollAgain.MORE:
                    continue
                if answer.body:
                    await asyncio.sleep(_get_seconds_to_next(COALESCE_SECONDS))
                async for beat in _wait_for_change(inbox, answer.again, ranks):
                    yield beat
                inbox.clear()


async def _wait_for_change(inbox: pubsub.Subscription, again: float, ranks: str) -> AsyncIterator[bytes]:
    """Yield heartbeats until it is worthwhile to poll again. Heartbeats need no query and have no position: a page that
    receives none knows that what it shows may be old."""
    look_at = time.monotonic() + min(
        _get_seconds_to_next(MAX_SILENCE_SECONDS if inbox.connected else POLL_SECONDS), again
    )
    while (left := look_at - time.monotonic()) > 0:
        hint = await inbox.get(timeout=min(left, HEARTBEAT_SECONDS))
        if hint is None:
            yield b"event: beat\ndata: {}\n\n"
        elif ranks != "none" or hint.get("kind") != "log":
            return


def _get_seconds_to_next(period: float) -> float:
    """Return the seconds until the next multiple of `period` on the monotonic clock."""
    return period - time.monotonic() % period
