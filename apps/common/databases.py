"""What a database's refusal means."""

from django.db import Error, InterfaceError, OperationalError

READ_ONLY = "25006"
"""PostgreSQL's state for a write where nothing is written: a standby, or a primary that was told so."""


class DatabaseAwayError(OperationalError):
    """The database is known to be away: nobody tried to connect for this request."""


def code(error: Error) -> str:
    """The code for whoever is answered that the database does not do its part; empty where the fault is not its."""
    cause = error.__cause__
    if getattr(cause, "sqlstate", None) == READ_ONLY or "SQLITE_READONLY" in getattr(cause, "sqlite_errorname", ""):
        return "DATABASE_READ_ONLY"
    return "DATABASE_UNAVAILABLE" if isinstance(error, OperationalError | InterfaceError) else ""
