"""Two of each process on one PostgreSQL and one Redis: what dies or stands still is replaced, what is away comes back,
and nothing is stored twice."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from apps.training.logs.poll_interval import MAX_PAUSE_SECONDS
from apps.training.logs.sharding import find_owner
from tests.platform_process import WARM
from tests.polling import until
from tests.replicas import Replicas, assert_stored_once

pytestmark = pytest.mark.faults

LONG = {"totalSteps": 4000, "stepDelay": 0.05, "checkpointEvery": 100, "logEvery": 1, "evalBatches": 1}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    running = Replicas(tmp_path_factory.mktemp("replicas") / "data", **WARM)
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture
def database(platform: Replicas) -> Any:
    def ask(query: str, *params: object) -> Any:
        with psycopg.connect(platform.env["DATABASE_URL"], autocommit=True) as connection:
            return connection.execute(query, params or None).fetchone()

    return ask


def begin(platform: Replicas, database: Any, **changes: Any) -> str:
    """A task of two environments whose lines are being stored."""
    task_id = platform.create(["env-001", "env-002"], hyperparameters={**LONG, **changes})
    until(lambda: read(database, task_id), seconds=120, what="its lines are stored")
    return task_id


def read(database: Any, task_id: str) -> int:
    """Bytes of rank 0."""
    found = database('SELECT "offset" FROM training_logcursor WHERE task_id = %s AND rank = 0', task_id)
    return found[0] if found else 0


def holder(platform: Replicas, database: Any, task_id: str) -> str:
    """The name of the process that watches the task."""
    (members,) = database("SELECT members FROM training_watch WHERE id = 1")
    pid = int(find_owner(tuple(sorted(members)), task_id).split(":")[1])
    return next(name for name, child in platform.children.items() if child.pid == pid)


def until_two_watch(database: Any) -> None:
    until(lambda: len(database("SELECT members FROM training_watch WHERE id = 1")[0]) == 2, what="two watchers")


def until_more_is_read(database: Any, task_id: str, seconds: float = 60) -> float:
    """How long that took."""
    began, before = time.monotonic(), read(database, task_id)
    until(lambda: read(database, task_id) > before, seconds=seconds, what=f"more of {task_id} is read")
    return time.monotonic() - began


@contextmanager
def stopped(platform: Replicas, name: str) -> Iterator[None]:
    platform.send(name, signal.SIGSTOP)
    try:
        yield
    finally:
        platform.send(name, signal.SIGCONT)


def test_a_killed_or_stalled_watcher_is_replaced_and_nothing_stored_twice(
    platform: Replicas, database: Any, record_property: Any
) -> None:
    until_two_watch(database)
    task_id = begin(platform, database)
    killed = holder(platform, database, task_id)
    platform.send(killed, signal.SIGKILL)
    record_property("taken over after kill -9", round(until_more_is_read(database, task_id), 1))
    heir = holder(platform, database, task_id)
    assert heir != killed
    platform.start_process(killed)
    until_two_watch(database)
    held = holder(platform, database, task_id)
    with stopped(platform, held):
        record_property("taken over after SIGSTOP", round(until_more_is_read(database, task_id), 1))
        assert holder(platform, database, task_id) != held
    until_two_watch(database)
    until_more_is_read(
        database, task_id, seconds=MAX_PAUSE_SECONDS + 10
    )  # one that stood still looks away for no longer
    assert_stored_once(platform, task_id)


def test_the_other_web_worker_and_beat_continue_alone(platform: Replicas, database: Any) -> None:
    for name in ("web", "worker", "beat-2"):
        platform.send(name, signal.SIGKILL)
    try:
        platform.port, platform.other_port = platform.other_port, platform.port
        platform.api, platform.other_api = platform.other_api, platform.api
        task_id = begin(platform, database, totalSteps=20)
        platform.until_state(task_id, "succeeded", seconds=240)
        assert assert_stored_once(platform, task_id) == 20
    finally:
        platform.port, platform.other_port = platform.other_port, platform.port
        platform.api, platform.other_api = platform.other_api, platform.api
        for name in ("web", "worker", "beat-2"):
            platform.start_process(name)
    until(lambda: not platform.faults(platform.port), what="web is back")


@pytest.mark.parametrize(
    ("away", "part", "code"),
    [
        ("no_database", "database", "DATABASE_UNAVAILABLE"),
        ("read_only_database", "database", "DATABASE_READ_ONLY"),
        ("no_broker", "broker", "BROKER_UNAVAILABLE"),
        ("read_only_broker", "broker", "BROKER_READ_ONLY"),
    ],
)
def test_an_unavailable_service_is_named_and_nothing_lost(
    platform: Replicas, database: Any, away: str, part: str, code: str
) -> None:
    task_id = begin(platform, database)
    with getattr(platform.services, away)():
        for port in platform.ports:
            until(lambda port=port: platform.faults(port).get(part) == code, what=f"{code} is said")
        if code == "DATABASE_READ_ONLY":
            refused = platform.api.post(f"/training-tasks/{task_id}/stop")
            assert (refused.status_code, refused.json()["error"]) == (503, code)
    for port in platform.ports:
        until(lambda port=port: not platform.faults(port), what="all is well again")
    assert_stored_once(platform, task_id)
    assert not [name for name, child in platform.children.items() if child.poll() is not None]
