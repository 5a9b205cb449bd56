"""Hints reach a real worker through a real broker; without one nobody waits for it."""

import logging
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.app.log import Logging
from celery.contrib.testing.worker import start_worker

from apps.common import pubsub, wakeups
from apps.common.celery_messages import QUEUE, message
from server.celery import app
from server.env import make_celery_url
from tests.apps.brokers import Broker, redis
from tests.polling import until

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.database

__all__ = ["redis"]


@pytest.fixture
def publisher(redis: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[wakeups.BackgroundPublisher]:
    """What `hints.send` leaves is his, and nothing is left when the test is over."""
    found = wakeups.BackgroundPublisher(wakeups._deliver_batch)
    monkeypatch.setattr(wakeups, "_publisher", found)
    monkeypatch.setattr(wakeups, "BROKER_PAUSE_SECONDS", 0.01)
    yield found
    assert found.finish(60)


def test_a_wakeup_reaches_its_listeners(publisher: wakeups.BackgroundPublisher, redis: Broker) -> None:
    redis.start()
    with pubsub.listen_for_wakeups("task:1") as bell:
        assert bell.wait(60)  # connected
        wakeups.publish_soon("task:1", {"kind": "event"})
        assert bell.wait(60)


def test_without_a_free_thread_wakeups_wait_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    passed: list[wakeups.Wakeup] = []
    publisher = wakeups.BackgroundPublisher(passed.extend)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        publisher.enqueue(("first",))
    publisher.enqueue(("second",))
    assert publisher.finish(60)
    assert passed == [("first",), ("second",)]


class BlockedPublisher:
    """Lets no delivery through before it is opened; what has passed."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.begun = threading.Event()
        self.passed: list[list[wakeups.Wakeup]] = []

    def __call__(self, some: list[wakeups.Wakeup]) -> None:
        self.begun.set()
        assert self.open.wait(60)
        self.passed.append(some)


def test_a_worker_acts_on_a_wakeup(
    publisher: wakeups.BackgroundPublisher, redis: Broker, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis.start()
    monkeypatch.setattr(Logging, "setup", lambda *_, **__: None)  # else it sets the level of everybody's logs
    celery = Celery("hints", broker=make_celery_url(settings.REDIS_URL), fixups=[], set_as_current=False)
    came: list[tuple[str, ...]] = []

    @celery.task(name="tests.hint", ignore_result=True)
    def hint(*args: str) -> None:
        came.append(args)

    with start_worker(celery, pool="solo", perform_ping_check=False, shutdown_timeout=60):
        wakeups.enqueue_task("tests.hint", "task-1")
        wakeups.enqueue_task("tests.hint")
        until(lambda: len(came) == 2, what="both have come")
    assert sorted(came) == [(), ("task-1",)]


def test_a_worker_drops_expired_wakeups(redis: Broker, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    redis.start()
    monkeypatch.setattr(Logging, "setup", lambda *_, **__: None)
    celery = Celery("hints", broker=make_celery_url(settings.REDIS_URL), fixups=[], set_as_current=False)
    came: list[str] = []

    @celery.task(name="tests.late", ignore_result=True)
    def hint(word: str) -> None:
        came.append(word)

    sent = {"late": -1.0, "early": 60.0, "any time": None}
    pubsub.get_client().lpush(QUEUE, *(message("tests.late", word, expires=expires) for word, expires in sent.items()))
    with start_worker(celery, pool="solo", perform_ping_check=False, shutdown_timeout=60):
        until(lambda: "any time" in came, what="the last has come")
    assert came == ["early", "any time"]


def test_pending_wakeups_are_sent_together_and_once() -> None:
    blocked = BlockedPublisher()
    publisher = wakeups.BackgroundPublisher(blocked)
    publisher.enqueue(("first",))
    assert blocked.begun.wait(60)
    for hint in (("b", "2"), ("a",), ("b", "1"), ("a",), ("first",)):
        publisher.enqueue(hint)
    blocked.open.set()
    assert publisher.finish(60)
    assert blocked.passed == [[("first",)], [("b", "2"), ("a",), ("b", "1"), ("first",)]]


def test_pending_wakeups_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "MAX_QUEUED_WAKEUPS", 2)
    blocked = BlockedPublisher()
    publisher = wakeups.BackgroundPublisher(blocked)
    publisher.enqueue(("first",))
    assert blocked.begun.wait(60)
    for number in range(5):
        publisher.enqueue((str(number),))
    blocked.open.set()
    assert publisher.finish(60)
    assert blocked.passed[1:] == [[("0",), ("1",)]]


def test_a_missing_broker_is_logged_once_per_outage(
    publisher: wakeups.BackgroundPublisher, redis: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    def said() -> int:
        return len([record for record in caplog.records if record.levelno == logging.WARNING])

    def arrived() -> bool:
        wakeups.enqueue_task("tests.hint")
        return publisher.finish(60) and pubsub.get_client().llen(QUEUE) > 0

    for number in (1, 2):
        for index in range(20):
            wakeups.enqueue_task("tests.hint", str(index))
            assert publisher.finish(60)
        assert said() == number
        redis.start()
        until(arrived, what="a hint arrives")
        redis.stop()


def test_a_forked_process_sends_its_own_wakeups(publisher: wakeups.BackgroundPublisher, redis: Broker) -> None:
    redis.start()
    wakeups.enqueue_task("tests.hint", "parent")
    assert publisher.finish(60)
    pid = os.fork()
    if pid == 0:
        wakeups.enqueue_task("tests.hint", "child")
        os._exit(0 if wakeups._publisher is not publisher and wakeups._publisher.finish(60) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert pubsub.get_client().llen(QUEUE) == 2


def test_every_wakeup_names_a_celery_task_that_exists() -> None:
    app.loader.import_default_modules()
    text = "\n".join(path.read_text("utf-8") for path in (ROOT / "apps").rglob("*.py"))
    named = set(re.findall(r'(?:enqueue_task|enqueue_after_commit|_send)\(\s*"([a-z.]+)"', text))
    assert {"training.sweep", "files.sweep", "code.fetch"} <= named <= app.tasks.keys()
