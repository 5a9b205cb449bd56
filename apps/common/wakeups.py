"""Messages that make things happen sooner. None of them is needed: the sweeps find what is due by themselves.

A background thread of the process publishes them: a request neither waits for the broker nor pays for a message of its
own. Messages that come while the last ones are being sent go out together, each once.
"""

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from apps.common import pubsub
from apps.common.celery_messages import QUEUE, message
from apps.common.encoding import encode

MOST = 10_000  # hints that wait to be sent; the sweeps find what comes beyond
GATHER = 0.005  # seconds between two deliveries; the first after a while goes at once
PAUSE = 1.0  # seconds without trying after the broker was found away
LAST = 1.0  # seconds that a process which ends waits for what it has left

Hint = tuple[str, ...] | pubsub.News  # the name of a Celery task and what it is called with; or what the bus is to say
log = logging.getLogger(__name__)


def send(name: str, *args: str) -> None:
    """Send a Celery task, by its name, to any worker. Never raises, never waits."""
    _postman.take((name, *args))


def tell(channel: str, data: Mapping[str, Any]) -> None:
    """Publish a message as `pubsub.publish_message` does, without waiting for the broker."""
    _postman.take(pubsub.News(channel, encode(data)))


class Postman:
    """Thread that calls `deliver` with all wake-ups that came since the last call. An error of `deliver` is logged once
    until it succeeds again, and its wake-ups are dropped."""

    def __init__(self, deliver: Callable[[list[Hint]], None]) -> None:
        self._deliver = deliver
        self._box: dict[Hint, None] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._carrying = False

    def take(self, hint: Hint) -> None:
        """Queue a wake-up; dropped if the queue is full."""
        with self._changed:
            if len(self._box) < MOST:
                self._box[hint] = None
            if self._thread is None:
                with suppress(RuntimeError):  # no thread is to be had: the next one who has something tries again
                    thread = threading.Thread(target=self._work, name="publisher", daemon=True)
                    thread.start()
                    self._thread = thread
            self._changed.notify_all()

    def finish(self, seconds: float) -> bool:
        """Wait up to `seconds` until all was delivered or dropped. Returns False after the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._box and not self._carrying, seconds)

    def _work(self) -> None:
        away = False
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._box)
                hints, self._box, self._carrying = list(self._box), {}, True
            try:
                self._deliver(hints)
                away = False
            except Exception as error:  # whatever the broker says: the next ones are tried all the same
                if not away:
                    log.warning("broker away, what is due waits for the sweep: %s", error)
                away = True
            with self._changed:
                self._carrying = False
                self._changed.notify_all()
            time.sleep(PAUSE if away else GATHER)


def _deliver(hints: list[Hint]) -> None:
    with pubsub.client().pipeline(transaction=False) as at_once:
        for hint in hints:
            if isinstance(hint, pubsub.News):
                at_once.publish(pubsub.PREFIX + hint.channel, hint.data)
        if messages := [message(*hint) for hint in hints if not isinstance(hint, pubsub.News)]:
            at_once.lpush(QUEUE, *messages)
        at_once.execute()


def _begin() -> None:
    """Start a new publisher in a forked process, which has none of its parent's threads."""
    global _postman
    _postman = Postman(_deliver)


_postman = Postman(_deliver)
os.register_at_fork(after_in_child=_begin)
atexit.register(lambda: _postman.finish(LAST))
