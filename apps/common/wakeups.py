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
from functools import partial
from typing import Any

from django.db import transaction

from apps.common import pubsub
from apps.common.celery_messages import QUEUE, message
from apps.common.encoding import encode_json

MAX_QUEUED_WAKEUPS = 10_000  # hints that wait to be sent; the sweeps find what comes beyond
BATCH_SECONDS = 0.005  # seconds between two deliveries; the first after a while goes at once
BROKER_PAUSE_SECONDS = 1.0  # seconds without trying after the broker was found away
SHUTDOWN_SECONDS = 1.0  # seconds that a process which ends waits for what it has left

Wakeup = (
    tuple[str, ...] | pubsub.PubSubMessage
)  # the name of a Celery task and what it is called with; or what the bus is to say
log = logging.getLogger(__name__)


def enqueue_task(name: str, *args: str) -> None:
    """Send a Celery task, by its name, to any worker. Never raises, never waits."""
    _publisher.enqueue((name, *args))


def enqueue_after_commit(name: str, *args: str) -> None:
    """Send a Celery task as `enqueue_task` does, after the current transaction is committed."""
    transaction.on_commit(partial(enqueue_task, name, *args))


def publish_soon(channel: str, data: Mapping[str, Any]) -> None:
    """Publish a message as `pubsub.publish_message` does, without waiting for the broker."""
    _publisher.enqueue(pubsub.PubSubMessage(channel, encode_json(data)))


class BackgroundPublisher:
    """Thread that calls `deliver` with all wake-ups that came since the last call. An error of `deliver` is logged once
    until it succeeds again, and its wake-ups are dropped."""

    def __init__(self, deliver: Callable[[list[Wakeup]], None]) -> None:
        self._deliver = deliver
        self._box: dict[Wakeup, None] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._carrying = False

    def enqueue(self, hint: Wakeup) -> None:
        """Queue a wake-up; dropped if the queue is full."""
        with self._changed:
            is_first = not self._box
            if len(self._box) < MAX_QUEUED_WAKEUPS:
                self._box[hint] = None
            if self._thread is None:
                with suppress(RuntimeError):  # no thread is to be had: the next one who has something tries again
                    thread = threading.Thread(target=self._work, name="publisher", daemon=True)
                    thread.start()
                    self._thread = thread
            if is_first:  # the thread waits only while there is nothing
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
            time.sleep(BROKER_PAUSE_SECONDS if away else BATCH_SECONDS)


def _deliver_batch(hints: list[Wakeup]) -> None:
    with pubsub.get_client().pipeline(transaction=False) as at_once:
        for hint in hints:
            if isinstance(hint, pubsub.PubSubMessage):
                at_once.publish(pubsub.CHANNEL_PREFIX + hint.channel, hint.data)
        if messages := [message(*hint) for hint in hints if not isinstance(hint, pubsub.PubSubMessage)]:
            at_once.lpush(QUEUE, *messages)
        at_once.execute()


def _restart_after_fork() -> None:
    """Start a new publisher in a forked process, which has none of its parent's threads."""
    global _publisher
    _publisher = BackgroundPublisher(_deliver_batch)


_publisher = BackgroundPublisher(_deliver_batch)
os.register_at_fork(after_in_child=_restart_after_fork)
atexit.register(lambda: _publisher.finish(SHUTDOWN_SECONDS))
