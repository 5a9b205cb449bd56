"""Drills: tests whether training resumes after a rank is killed."""

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.transport import Transport
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

    def wait(self, drill_id: str, *, timeout: float | None = None, patience: float = 300.0) -> Drill:
        """Wait for the drill's end and return it. Raise TimeoutError after `timeout` seconds. A platform that is
        unreachable for less than `patience` seconds is waited for."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            found: Drill = self._transport.call("GET", _path(drill_id), patience=min(patience, left))
            if found["status"] in ("done", "failed"):
                return found
            if left <= 0:
                raise TimeoutError(f"{drill_id} has not ended within {timeout:g} s")
            time.sleep(min(0.5, left))


def _path(drill_id: str, rest: str = "") -> str:
    return f"/drills/{quote(drill_id, safe='')}{rest}"
