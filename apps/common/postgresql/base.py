"""Django's PostgreSQL backend with a circuit breaker around its pool of connections.

A pool whose server is away lets each request wait as long as one that waits for a connection to become free (20 s): it
does not tell the two apart. So who has waited for the pool's timeout, a second, tries to connect without it. Where that
fails, the database counts as away: each request for a connection fails at once, until a thread that tries again and
again has connected.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from django.db.backends.postgresql import base
from psycopg_pool import PoolTimeout

from apps.common.sql import DatabaseAwayError

log = logging.getLogger(__name__)

PATIENCE_S = 20.0
"""So long a request waits for one of the pool's connections to become free."""
RETRY_S = 0.5
"""Between two attempts to connect while the database is away."""
CONNECT_S = 2
"""For one attempt to connect without the pool."""


class Breaker:
    """Whether the database is away. One a process: all of its threads use one database."""

    def __init__(self) -> None:
        self._away = ""
        self._guard = threading.Lock()

    def check(self) -> None:
        """Raises DatabaseAwayError while the database is known to be away."""
        if self._away:
            raise DatabaseAwayError(self._away)

    def look(self, connect: Callable[[], Any]) -> None:
        """Connects by `connect`, and closes that connection again. Raises DatabaseAwayError, from then on also in
        `check`, where that fails. Of several threads one connects, and the others have its answer."""
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
            pause.wait(RETRY_S)
            try:
                connect().close()
            except Exception as error:
                log.debug("the database is still away: %s", error)
            else:
                self._away = ""
                log.warning("the database is back")


BREAKER = Breaker()


class DatabaseWrapper(base.DatabaseWrapper):
    """Raises DatabaseAwayError, an OperationalError, instead of waiting for a server that is not there."""

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        if not self.pool:
            return super().get_new_connection(conn_params)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            BREAKER.check()
            try:
                return super().get_new_connection(conn_params)
            except PoolTimeout:
                BREAKER.look(lambda: self.Database.connect(**{**conn_params, "connect_timeout": CONNECT_S}))
                if time.monotonic() > deadline:
                    raise
