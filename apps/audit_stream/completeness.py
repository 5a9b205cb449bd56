"""Up to which id the audit trail is complete.

PostgreSQL gives out ids when rows are inserted and shows rows when their transactions end, so that an event may appear
after one with a larger id. Each transaction that inserts locks the table (ROW EXCLUSIVE) before it gets an id, and
keeps the lock until its rows can be seen. So all ids up to the newest visible one are settled as soon as those
transactions are over that held the lock after it was read: what CREATE INDEX CONCURRENTLY waits for, too. SQLite has
one writer at a time: there all is settled.
"""

from django.db import connection
from django.db.models import Max

from apps.accounts.models import AuditEvent
from apps.audit_stream.models import AuditReceiver

_WRITERS = """
SELECT DISTINCT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted AND pid IS DISTINCT FROM pg_backend_pid()
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND relation = %s::regclass
"""


def get_newest_id() -> int:
    """Return the largest id that can be seen; 0 without events."""
    newest: int | None = AuditEvent.objects.aggregate(newest=Max("pk"))["newest"]
    return newest or 0


def settle_events(receiver: AuditReceiver) -> None:
    """Set `settled`, `mark` and `mark_writers` of the instance to what is known now. It is not saved."""
    if receiver.mark is None:
        newest = get_newest_id()
        if newest <= receiver.settled:
            return
        receiver.mark, receiver.mark_writers = newest, sorted(list_writers())  # in this order
    else:
        receiver.mark_writers = sorted(list_writers().intersection(receiver.mark_writers))
    if not receiver.mark_writers:
        receiver.settled, receiver.mark = receiver.mark, None


def list_writers() -> set[str]:
    """Return the other transactions that may have inserted events and are not over."""
    if connection.vendor != "postgresql":
        return set()
    with connection.cursor() as cursor:
        cursor.execute(_WRITERS, [AuditEvent._meta.db_table])
        return {row[0] for row in cursor.fetchall()}
