"""SQL that is made once and put to the database again and again.

On SQLite most of what a small statement takes is not SQLite: Django makes a cursor of its own, passes wrappers, and
looks for the places of parameters in the text each time. So there it is put to the driver as it is, with Django's
errors and its look at a broken transaction. Whoever watches the statements (tests, profiles) sees all of them: then
they go Django's way."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.sqlite3.base import FORMAT_QMARK_REGEX


class Statement:
    """`sql` as Django's compiler makes it, with %s for each parameter."""

    def __init__(self, sql: str) -> None:
        self.sql = sql

    @cached_property
    def _plain(self) -> str:
        return FORMAT_QMARK_REGEX.sub("?", self.sql).replace("%%", "%")

    def ask(self, values: Sequence[Any]) -> list[Any]:
        """All rows; none of a statement that gives none."""
        database: Any = connections[DEFAULT_DB_ALIAS]
        if database.vendor == "sqlite" and not database.execute_wrappers and not database.queries_logged:
            database.ensure_connection()
            database.validate_thread_sharing()
            database.validate_no_broken_transaction()
            with database.wrap_database_errors:
                return database.connection.execute(self._plain, values).fetchall()
        with database.cursor() as cursor:
            cursor.execute(self.sql, values)
            return cursor.fetchall() if cursor.description else []
