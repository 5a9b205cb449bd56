"""Reservations of environments."""

from typing import Any
from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.transport import Transport
from fermi.client.types import PatchedReservationChangeRequest, Reservation, ReservationCreateRequest


class Reservations:
    """Reservations for a project or, without a project, for maintenance. Times are ISO 8601."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self, *, project: str | None = None, since: str | None = None, until: str | None = None
    ) -> Listing[Reservation]:
        """Return those that end after `since` (by default now) and begin before `until`."""
        filters: dict[str, Any] = {"project": project, "from": since, "to": until}
        return Listing(self._transport, "/reservations", filters)

    def get(self, reservation_id: str) -> Reservation:
        return self._transport.call("GET", f"/reservations/{quote(reservation_id)}")

    def create(self, request: ReservationCreateRequest) -> Reservation:
        return self._transport.call("POST", "/reservations", json=request)

    def update(self, reservation_id: str, changes: PatchedReservationChangeRequest) -> Reservation:
        return self._transport.call("PATCH", f"/reservations/{quote(reservation_id)}", json=changes)

    def delete(self, reservation_id: str) -> None:
        self._transport.call("DELETE", f"/reservations/{quote(reservation_id)}")
