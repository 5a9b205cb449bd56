"""Messages between processes, with a real broker that comes and goes."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from apps.common import pubsub
from tests.apps.brokers import Broker, redis
from tests.polling import until

pytestmark = pytest.mark.database

__all__ = ["redis"]


async def told(inbox: pubsub.Subscription, say: Callable[[], None]) -> dict[str, Any] | None:
    """Says it again and again until it arrives: a message may be lost, and nothing may depend on it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        say()
        if message := await inbox.get(timeout=0.05):
            return message
    return None


def test_a_message_reaches_all_subscribers_of_its_channel_only(redis: Broker) -> None:
    redis.start()

    async def main() -> None:
        async with (
            pubsub.subscribe_to("task:1") as one,
            pubsub.subscribe_to("task:1", "tasks") as both,
            pubsub.subscribe_to("x") as none,
        ):
            assert await told(one, lambda: pubsub.publish_message("task:1", {"kind": "log"})) == {"kind": "log"}
            assert await both.get(timeout=60) == {"kind": "log"}
            assert await told(both, lambda: pubsub.publish_message("tasks", {"id": "1"}))
            assert await none.get(timeout=0) is None

    asyncio.run(main())


def test_publishing_without_a_broker_is_quick_and_does_not_raise(redis: Broker) -> None:
    for _ in range(1000):
        pubsub.publish_message("task:1", {"kind": "log"})


def test_a_subscriber_without_a_broker_gets_nothing(redis: Broker) -> None:
    async def main() -> None:
        async with pubsub.subscribe_to("task:1") as inbox:
            assert await inbox.get(timeout=0.2) is None

    asyncio.run(main())


def test_a_subscriber_reconnects_when_the_broker_returns(redis: Broker) -> None:
    async def main() -> None:
        async with pubsub.subscribe_to("task:1") as inbox:
            for _ in range(2):
                await asyncio.to_thread(redis.start)
                assert await told(inbox, lambda: pubsub.publish_message("task:1", {"kind": "log"}))
                await asyncio.to_thread(redis.stop)

    asyncio.run(main())


def test_a_subscriber_knows_whether_it_is_connected(redis: Broker) -> None:
    async def main() -> None:
        async with pubsub.subscribe_to("task:1") as inbox:
            assert not inbox.connected
            await asyncio.to_thread(redis.start)
            await asyncio.to_thread(until, lambda: inbox.connected)
            await asyncio.to_thread(redis.stop)
            assert await inbox.get(timeout=60) == {}
            assert not inbox.connected

    asyncio.run(main())


def test_one_connection_serves_all_subscribers_and_closes_with_the_last(redis: Broker) -> None:
    redis.start()

    def listening() -> int:
        return len(pubsub.get_client().client_list(_type="pubsub"))

    async def main() -> None:
        async with pubsub.subscribe_to("a") as first:
            assert await told(first, lambda: pubsub.publish_message("a", {"n": 1}))
            inboxes = [pubsub.subscribe_to(f"task:{n}") for n in range(50)]
            for inbox in inboxes:
                await inbox.__aenter__()
            assert listening() == 1
            for inbox in inboxes:
                await inbox.__aexit__()
        await asyncio.to_thread(until, lambda: not listening(), what="the connection is closed")

    asyncio.run(main())


def test_a_slow_subscriber_keeps_the_newest_messages(redis: Broker) -> None:
    async def main() -> None:
        inbox = pubsub.subscribe_to("a")
        for n in range(pubsub.MAX_QUEUED_MESSAGES + 10):
            inbox.put({"n": n})
        assert await inbox.get(timeout=0) == {"n": 10}

    asyncio.run(main())


@pytest.mark.parametrize("steps", range(16))
def test_a_subscriber_that_leaves_early_leaves_no_listener(redis: Broker, steps: int) -> None:
    """`steps`: turns of the event loop. In one of them the client has sent its first command and does not know yet."""

    async def main() -> set[asyncio.Task[Any]]:
        async with pubsub.subscribe_to("task:x"):
            for _ in range(steps):
                await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        return (await asyncio.wait(others, timeout=10))[1] if others else set()

    redis.start()
    loop = asyncio.new_event_loop()
    try:
        assert loop.run_until_complete(main()) == set()
    finally:
        loop.close()
