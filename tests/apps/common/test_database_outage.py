"""A PostgreSQL that goes away and comes back: who asks for a connection meanwhile does not wait for it."""

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError
from django.db.utils import ConnectionHandler

from apps.common.postgresql import base
from apps.common.sql import DatabaseUnavailableError
from server import env
from tests import services
from tests.polling import until

pytestmark = pytest.mark.database

ALIAS = "comes_and_goes"


@pytest.fixture(scope="module")
def server() -> Iterator[services.Postgres]:
    try:
        programs = services._postgres_bin()
    except services.MissingServerError as error:
        pytest.skip(str(error))
    with tempfile.TemporaryDirectory(prefix="fermi-services-", dir="/tmp") as folder:  # a socket's path is bounded
        Path(folder).chmod(0o711)
        server = services.Postgres(programs, Path(folder, "pg"))
        yield server
        server.stop()


@pytest.fixture
def handler(
    server: services.Postgres, monkeypatch: pytest.MonkeyPatch, django_db_blocker: Any
) -> Iterator[ConnectionHandler]:
    """As a process of the platform has it."""
    monkeypatch.setattr(base, "BREAKER", base.CircuitBreaker())
    entry = env.parse_postgres_url(server.url)
    handler = ConnectionHandler({"default": entry, ALIAS: entry})
    with django_db_blocker.unblock():  # it is no database of Django's
        yield handler
        handler[ALIAS].close()
        wrapper(handler).close_pool()


def wrapper(handler: ConnectionHandler) -> base.DatabaseWrapper:
    found = handler[ALIAS]
    assert isinstance(found, base.DatabaseWrapper)
    return found


def run_query(handler: ConnectionHandler) -> int:
    """As each request does, which gives its connection back."""
    connection = handler[ALIAS]
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            return int(cursor.fetchone()[0])
    finally:
        connection.close()


def answers(handler: ConnectionHandler) -> bool:
    try:
        return run_query(handler) == 1
    except OperationalError:
        return False


def test_requests_fail_at_once_while_the_database_is_away(
    server: services.Postgres, handler: ConnectionHandler
) -> None:
    assert run_query(handler) == 1
    pool = wrapper(handler).pool
    server.stop()
    with pytest.raises(DatabaseUnavailableError):
        run_query(handler)
    asked = pool.get_stats()["requests_num"]
    for _ in range(100):
        with pytest.raises(DatabaseUnavailableError):
            run_query(handler)
    assert pool.get_stats()["requests_num"] == asked
    server.start()
    until(lambda: answers(handler), what="requests are answered again")
    assert not base.BREAKER._away


def test_one_thread_tries_to_reconnect_for_all(server: services.Postgres, handler: ConnectionHandler) -> None:
    tried: list[str] = []

    def connect() -> Any:
        tried.append(threading.current_thread().name)
        raise OperationalError("nobody listens")

    def look() -> None:
        with pytest.raises(DatabaseUnavailableError, match="nobody listens"):
            base.BREAKER.try_connection(connect)

    threads = [threading.Thread(target=look, name=f"request-{number}") for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(name.startswith("request-") for name in tried) == 1
    base.BREAKER._away = ""


def test_an_exhausted_pool_is_waited_for(
    server: services.Postgres, handler: ConnectionHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than the time after which somebody looks whether the database is there."""
    pool = wrapper(handler).pool
    pool.open()
    held = [pool.getconn(60) for _ in range(pool.max_size)]
    looked = threading.Event()
    look = base.BREAKER.try_connection

    def noticed(connect: Any) -> None:
        look(connect)
        looked.set()

    monkeypatch.setattr(base.BREAKER, "try_connection", noticed)
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(run_query(handler)))
    waiting.start()
    assert looked.wait(60)
    for connection in held:
        pool.putconn(connection)
    waiting.join(60)
    assert found == [1]
