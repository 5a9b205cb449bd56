"""The state of the stream, for administrators and for /metrics."""

from datetime import datetime
from typing import Any

from apps.accounts.models import AuditEvent
from apps.audit_stream.models import AuditReceiver
from apps.audit_stream.receivers import format_address, list_addresses

MAX_COUNTED = 10_000


def list_receivers() -> list[dict[str, Any]]:
    """Return the receivers that are set, with how far each has come. `firstUnsentAt`: when the first event happened
    that the receiver has not confirmed."""
    rows = AuditReceiver.objects.in_bulk()
    return [_serialize_receiver(name, address, rows.get(name)) for name, address in list_addresses().items()]


def _serialize_receiver(name: str, address: str, row: AuditReceiver | None) -> dict[str, Any]:
    return {
        "name": name,
        "address": format_address(address),
        "position": row.position if row else None,
        "eventsBehind": count_unsent(row) if row else 0,
        "firstUnsentAt": _find_first_unsent(row) if row else None,
        "sentAt": row.sent_at if row else None,
        "failingSince": row.failing_since if row else None,
        "failures": row.failures if row else 0,
        "problem": row.problem if row else "",
        "nextTryAt": row.due_at if row and row.failures else None,
    }


def _find_first_unsent(row: AuditReceiver) -> datetime | None:
    later = AuditEvent.objects.filter(pk__gt=row.position).order_by("pk")
    return later.values_list("at", flat=True).first()


def count_unsent(row: AuditReceiver) -> int:
    """Return how many events the receiver has not confirmed; at most MAX_COUNTED are counted."""
    return AuditEvent.objects.filter(pk__gt=row.position).order_by("pk")[:MAX_COUNTED].count()
