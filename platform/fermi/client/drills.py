"""Drills: tests whether training resumes after a rank is killed."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.transport import MAX_OUTAGE_SECONDS, Transport
from fermi.client.types import Drill


class Drills:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self, task_id: str | None = None, *, request: Mapping[str, Any] | None = None, minutes: float | None = None
    ) -> Drill:
        """Create a drill of a task or of a request; it starts as soon as the environments are free."""
        body = {"taskId": task_id, "request": request, "minutes": minutes}
        given = {name: value for name, value in body.items() if value is not None}
        return self._transport.call("POST", "/drills", json=given)

    def list(self, *, status: str | None = None, task: str | None = None, search: str | None = None) -> Listing[Drill]:
        """Return drills, newest first."""
        return Listing(self._transport, "/drills", {"status": status, "task": task, "search": search})

    def get(self, drill_id: str) -> Drill:
        return self._transport.call("GET", _path(drill_id))

    def stop(self, drill_id: str) -> Drill:
        """Request the drill's stop and return it; repeating the request changes nothing."""
        return self._transport.call("POST", _path(drill_id, "/stop"), repeatable=True)

    def wait(self, drill_id: str, *, timeout: float | None = None, patience: float = MAX_OUTAGE_SECONDS) -> Drill:
        """Wait for the drill's end and return it. Raise TimeoutError after `timeout` seconds. A platform that is
        unreachable for less than `patience` seconds is waited for."""
        return self._transport.wait(_path(drill_id), _has_ended, drill_id, timeout, patience)


def _has_ended(found: Drill) -> bool:
    return found["status"] in ("done", "failed")


def _path(drill_id: str, rest: str = "") -> str:
    return f"/drills/{quote(drill_id, safe='')}{rest}"
