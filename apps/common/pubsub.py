"""Best-effort messages between processes over Redis pub/sub: hints that something changed, never the data itself.

A receiver also reads the database from time to time; a message only makes it do so sooner.

    pubsub.publish_message(f"task.{task.id}", {"kind": "log", "rank": 3})   # any process; never raises, never waits
    long async with pubsub.subscribe_to(f"task.{task_id}") as subscription:      # ASGI
        message = await subscription.get(timeout=2.0)       # None: no message came, or the broker is unavailable

One connection for each process serves all its subscriptions, however many pages are open.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple, Self

import orjson
import redis
import redis.asyncio
from django.conf import settings

from apps.common.encoding import encode_json

log = logging.getLogger(__name__)

CHANNEL_PREFIX = "fermi:"
BROKER_PAUSE_SECONDS = 1.0  # seconds without trying after the broker was found away
MAX_QUEUED_MESSAGES = 256  # messages; when a slow reader's inbox is full the oldest goes

_paused_until = 0.0


@cache
def get_client() -> redis.Redis:
    """Return the process's Redis client, shared by all threads; no call waits longer than half a second."""
    return redis.from_url(settings.REDIS_URL, socket_connect_timeout=0.5, socket_timeout=0.5)


class PubSubMessage(NamedTuple):
    """A message to be published."""

    channel: str
    data: bytes


def publish_message(channel: str, data: Mapping[str, Any]) -> None:
    """Publish a message. Never raises: while the broker is unavailable, the messages of the next second are dropped
    without trying."""
    global _paused_until
    if time.monotonic() < _paused_until:
        return
    try:
        get_client().publish(CHANNEL_PREFIX + channel, encode_json(data))
    except (redis.RedisError, OSError) as error:
        _paused_until = time.monotonic() + BROKER_PAUSE_SECONDS
        log.debug("broker away, message dropped: %s", error)


def set_figure(name: str, value: float, seconds: int = 60) -> None:
    """Store a figure for other processes for `seconds`. Never raises; the figure may be lost."""
    global _paused_until
    if time.monotonic() < _paused_until:
        return
    try:
        get_client().set(f"{CHANNEL_PREFIX}kept.{name}", repr(value), ex=seconds)
    except (redis.RedisError, OSError) as error:
        _paused_until = time.monotonic() + BROKER_PAUSE_SECONDS
        log.debug("broker away, figure dropped: %s", error)


def get_figure(name: str) -> float | None:
    """Return a stored figure, or None."""
    found = get_client().get(f"{CHANNEL_PREFIX}kept.{name}")
    return float(found) if found is not None else None


_subscription_count = 0


def count_subscriptions() -> int:
    """Return how many subscriptions this process has open."""
    return _subscription_count


class Subscription:
    """Messages on some channels, inside of `async with`, as soon as the broker is reached."""

    def __init__(self, channels: tuple[str, ...]) -> None:
        self.channels = channels
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MAX_QUEUED_MESSAGES)

    async def __aenter__(self) -> Self:
        global _subscription_count
        self._hub = _get_dispatcher()
        self._hub.add(self)
        _subscription_count += 1
        return self

    async def __aexit__(self, *exc: object) -> None:
        global _subscription_count
        _subscription_count -= 1
        self._hub.remove(self)

    @property
    def connected(self) -> bool:
        """Return True while messages can arrive."""
        return self._hub.connected

    async def get(self, timeout: float) -> dict[str, Any] | None:
        """Return the next message, or None after `timeout` seconds without one. The message is empty when the broker
        becomes unavailable."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                return await self._queue.get()
        return None

    def clear(self) -> None:
        """Drop waiting messages, before the database is read anyway."""
        while not self._queue.empty():
            self._queue.get_nowait()

    def put(self, data: dict[str, Any]) -> None:
        """Add a message; drop the oldest if the queue is full."""
        if self._queue.full():
            self._queue.get_nowait()
        self._queue.put_nowait(data)


def subscribe_to(*channels: str) -> Subscription:
    """Return a subscription to these channels."""
    return Subscription(channels)


class WakeupEvent:
    """Lets a process sleep until there is work: `with pubsub.listen_for_wakeups("tasks") as wakeup:
    wakeup.wait(1.0)`."""

    def __init__(self, channels: tuple[str, ...]) -> None:
        self._channels = [CHANNEL_PREFIX + channel for channel in channels]
        self._pubsub: redis.client.PubSub | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._pubsub:
            self._pubsub.close()

    def wait(self, timeout: float) -> bool:
        """Return True if a message came within `timeout` seconds, or may have been missed: also after it was connected
        (again). Returns False after that time while the broker is unavailable. Messages that come together count once.
        """
        until = time.monotonic() + timeout
        try:
            if self._pubsub is None:
                pubsub = redis.from_url(settings.REDIS_URL, socket_connect_timeout=0.5).pubsub()
                pubsub.subscribe(*self._channels)
                self._pubsub = pubsub
            rung = self._pubsub.get_message(timeout=timeout) is not None
            while rung and self._pubsub.get_message(timeout=0.0) is not None:
                pass
            return rung
        except (redis.RedisError, OSError) as error:
            log.debug("broker away: %s", error)
            self._pubsub = None
            time.sleep(max(0.0, until - time.monotonic()))
            return False


def listen_for_wakeups(*channels: str) -> WakeupEvent:
    """Return a listener for wake-ups on these channels."""
    return WakeupEvent(channels)


class _Dispatcher:
    """One event loop's connection to the broker: open while there are subscriptions, and opened again after an
    error."""

    def __init__(self) -> None:
        self._inboxes: defaultdict[str, set[Subscription]] = defaultdict(set)
        self._listener: asyncio.Task[None] | None = None
        self.connected = False

    def add(self, inbox: Subscription) -> None:
        for channel in inbox.channels:
            self._inboxes[channel].add(inbox)
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen())

    def remove(self, inbox: Subscription) -> None:
        for channel in inbox.channels:
            self._inboxes[channel].discard(inbox)
            if not self._inboxes[channel]:
                del self._inboxes[channel]
        if not self._inboxes and self._listener:
            self._listener.cancel()
            self._listener = None
            self.connected = False

    async def _listen(self) -> None:
        """Receive messages until cancelled. The client waits with `asyncio.wait_for`, in which Python 3.11 may lose a
        cancellation (python/cpython#86296), so that is checked as well; a first message always comes."""
        listener = asyncio.current_task()
        assert listener
        while not listener.cancelling():
            try:
                async with redis.asyncio.from_url(settings.REDIS_URL) as client, client.pubsub() as pubsub:
                    await pubsub.psubscribe(CHANNEL_PREFIX + "*")
                    async for message in pubsub.listen():
                        if listener.cancelling():
                            break
                        if message["type"] == "pmessage":
                            self._deliver(message["channel"].decode().removeprefix(CHANNEL_PREFIX), message["data"])
                        elif message["type"] == "psubscribe":
                            self.connected = True
            except (redis.RedisError, OSError, ValueError) as error:  # ValueError: not one of our messages
                log.debug("listening again: %s", error)
                self._disconnected()
                await asyncio.sleep(BROKER_PAUSE_SECONDS)

    def _disconnected(self) -> None:
        """Wake all subscriptions: from now on they have to read the database by themselves."""
        if self.connected:
            self.connected = False
            for inbox in {inbox for inboxes in self._inboxes.values() for inbox in inboxes}:
                inbox.put({})

    def _deliver(self, channel: str, data: bytes) -> None:
        if inboxes := self._inboxes.get(channel):
            message = orjson.loads(data)
            for inbox in inboxes:
                inbox.put(message)


_dispatchers: dict[asyncio.AbstractEventLoop, _Dispatcher] = {}


def _get_dispatcher() -> _Dispatcher:
    loop = asyncio.get_running_loop()
    for gone in [other for other in _dispatchers if other.is_closed()]:
        del _dispatchers[gone]
    return _dispatchers.setdefault(loop, _Dispatcher())
