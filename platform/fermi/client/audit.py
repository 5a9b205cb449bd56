"""The audit trail."""

from collections.abc import Iterator
from typing import Any

from fermi.client.pagination import Listing
from fermi.client.transport import Transport
from fermi.client.types import AuditAction, AuditEventItem


class Audit:
    """Who did what: for administrators everywhere, for maintainers in their projects."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def events(
        self,
        *,
        project: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
        token: str | None = None,
        address: str | None = None,
        begin: str | None = None,
        end: str | None = None,
    ) -> Listing[AuditEventItem]:
        """Return events, the newest first. Each filter compares the whole value; `begin` and `end` are ISO 8601."""
        filters = _name_filters(project, actor, action, target, token, address)
        return Listing(self._transport, "/audit-events", {**filters, "begin": begin, "end": end, "cursor": ""})

    def actions(self) -> list[AuditAction]:
        """Return the actions that are recorded, with what they are called."""
        return self._transport.call("GET", "/audit-events/actions")["items"]

    def export(
        self,
        begin: str,
        end: str,
        *,
        project: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
        token: str | None = None,
        address: str | None = None,
    ) -> Iterator[str]:
        """Yield the events of a span of at most 366 days (ISO 8601), the oldest first, as lines of JSON."""
        filters = _name_filters(project, actor, action, target, token, address)
        params = {**filters, "begin": begin, "end": end}
        with self._transport.open("/audit-events/export", params=params) as response:
            yield from response.iter_lines()


def _name_filters(
    project: str | None,
    actor: str | None,
    action: str | None,
    target: str | None,
    token: str | None,
    address: str | None,
) -> dict[str, Any]:
    named = {"project": project, "actor": actor, "action": action}
    return {**named, "target": target, "token": token, "address": address}
