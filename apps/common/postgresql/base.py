"""Django's PostgreSQL backend with a circuit breaker around its connection pool.

While the server is down, a pool lets each request wait as long as for a free connection (20 s), because it does not
distinguish the two. So a request that has waited for the pool's timeout, a second, tries to connect without the pool.
If that fails, the database counts as unavailable: each request for a connection fails at once, until a thread that
keeps trying has connected.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from django.db.backends.postgresql import base
from psycopg_pool import PoolTimeout

from apps.common.sql import DatabaseUnavailableError

log = logging.getLogger(__name__)

POOL_WAIT_SECONDS = 20.0
"""How long a request waits for a free connection of the pool."""
RETRY_SECONDS = 0.5
"""Pause between two attempts to connect while the database is unavailable."""
CONNECT_TIMEOUT_SECONDS = 2
"""Timeout of one attempt to connect without the pool."""


class CircuitBreaker:
    """Circuit breaker of the database. One for each process: all threads use one database."""

    def __init__(self) -> None:
        self._away = ""
        self._guard = threading.Lock()

    def check(self) -> None:
        """Raise DatabaseUnavailableError while the database is known to be unavailable."""
        if self._away:
            raise DatabaseUnavailableError(self._away)

    def try_connection(self, connect: Callable[[], Any]) -> None:
        """Open a connection by `connect` and close it. If that fails, raise DatabaseUnavailableError, from then on also
        in `check`. Of several threads one connects, and the others get its result."""
        with self._guard:
            self.check()
            try:
                connect().close()
            except Exception as error:
                self._away = str(error)
                log.error("the database is away; requests are refused until it is back: %s", error)
                threading.Thread(target=self._until_back, args=(connect,), name="database", daemon=True).start()
        self.check()

    def _until_back(self, connect: Callable[[], Any]) -> None:
        pause = threading.Event()
        while self._away:
            pause.wait(RETRY_SECONDS)
            try:
                connect().close()
            except Exception as error:
                log.debug("the database is still away: %s", error)
            else:
                self._away = ""
                log.warning("the database is back")


BREAKER = CircuitBreaker()


class DatabaseWrapper(base.DatabaseWrapper):
    """Database connection that raises DatabaseUnavailableError, an OperationalError, instead of waiting for a server
    that is down."""

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        if not self.pool:
            return super().get_new_connection(conn_params)
        deadline = time.monotonic() + POOL_WAIT_SECONDS
        while True:
            BREAKER.check()
            try:
                return super().get_new_connection(conn_params)
            except PoolTimeout:
                BREAKER.try_connection(
                    lambda: self.Database.connect(**{**conn_params, "connect_timeout": CONNECT_TIMEOUT_SECONDS})
                )
                if time.monotonic() > deadline:
                    raise
