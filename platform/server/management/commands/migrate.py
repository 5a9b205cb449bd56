"""Django's `migrate`, beside processes that use the database.

A migration locks several tables, one after the other, and so does a request of the release that still runs, in another
order: each may wait for the other. PostgreSQL ends one of the two after `deadlock_timeout` (1 s by default). Here a
migration waits for a lock for less time than that, so that it gives way and no request fails, and no request waits long
behind it. What has begun is rolled back as a whole, since each migration is one transaction, and begun again.
"""

import random
import time
from typing import Any

from django.core.management.commands import migrate
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from apps.common.pass_claims import DEADLOCK_SQLSTATE

LOCK_TIMEOUT_MS = 500
BUSY_SQLSTATES = (DEADLOCK_SQLSTATE, "55P03")
"""Of a deadlock, and of a lock that was not free in time."""
MAX_TRIES = 200
PAUSE_SECONDS = (0.2, 2.0)


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> str | None:
        """Migrate. Raises OperationalError if a lock was not free in MAX_TRIES tries."""
        connection = connections[options["database"]]
        if connection.vendor != "postgresql" or connection.in_atomic_block:
            return super().handle(*args, **options)
        for left in reversed(range(MAX_TRIES)):
            set_lock_timeout(connection, str(LOCK_TIMEOUT_MS))
            try:
                found = super().handle(*args, **options)
            except OperationalError as error:
                # Django does not leave the transaction if a statement fails that it has put off to its end
                connection.close()
                connection.connect()
                if not left or getattr(error.__cause__, "sqlstate", "") not in BUSY_SQLSTATES:
                    raise
                self.stderr.write(f"a table is in use, this is tried again: {str(error).splitlines()[0]}")
                wait_for_others()
            else:
                set_lock_timeout(connection, "DEFAULT")
                return found
        raise AssertionError  # the last try has returned or raised


def set_lock_timeout(connection: BaseDatabaseWrapper, value: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = {value}")


def wait_for_others() -> None:
    """Wait before a migration is tried again."""
    time.sleep(random.uniform(*PAUSE_SECONDS))
