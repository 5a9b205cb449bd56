"""Receivers that the platform's environment names, and the text of one event."""

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from apps.common.encoding import encode_json

MAX_EVENT_BYTES = 64 << 10
MAX_DATAGRAM_BYTES = 8 << 10
MAX_PROBLEM_LENGTH = 300


class ReceiverError(Exception):
    """The receiver did not confirm the events, for this reason."""


def list_addresses() -> dict[str, str]:
    """Return the addresses of the receivers that are set, by kind."""
    named = {"syslog": settings.AUDIT_SYSLOG, "webhook": settings.AUDIT_WEBHOOK}
    return {name: address for name, address in named.items() if address}


def format_address(address: str) -> str:
    """Return what may be shown of an address: no user, password, path or query."""
    parts = urlsplit(address)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}"


def encode_event(event: dict[str, Any], max_bytes: int = MAX_EVENT_BYTES) -> bytes:
    """Return the event as the export has it, one line of JSON without its end. One that is longer than `max_bytes`
    has `data` null and `dataBytes`, how long it was."""
    line = encode_json(event)
    if len(line) > max_bytes:
        line = encode_json({**event, "data": None, "dataBytes": len(encode_json(event["data"]))})
    return line
