"""Pre-flight tests: whether environments can train together."""

from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.transport import MAX_OUTAGE_SECONDS, Transport
from fermi.client.types import PreflightBrief, PreflightDetail


class Preflights:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        environment_ids: Sequence[str],
        *,
        level: Literal["quick", "full"] = "quick",
        master: str | None = None,
        framework: str | None = None,
    ) -> PreflightDetail:
        """Create a test, which starts as soon as the environments are free."""
        body: dict[str, Any] = {"environmentIds": [*environment_ids], "level": level}
        body |= {name: value for name, value in (("masterNode", master), ("framework", framework)) if value}
        return self._transport.call("POST", "/preflights", json=body)

    def list(
        self, *, status: str | None = None, environment: str | None = None, search: str | None = None
    ) -> Listing[PreflightBrief]:
        """Return tests, newest first."""
        return Listing(self._transport, "/preflights", {"status": status, "environment": environment, "search": search})

    def get(self, preflight_id: str) -> PreflightDetail:
        return self._transport.call("GET", _path(preflight_id))

    def stop(self, preflight_id: str) -> PreflightDetail:
        """Request the test's stop and return it; repeating the request changes nothing."""
        return self._transport.call("POST", _path(preflight_id, "/stop"), repeatable=True)

    def wait(
        self, preflight_id: str, *, timeout: float | None = None, patience: float = MAX_OUTAGE_SECONDS
    ) -> PreflightDetail:
        """Wait for the test's end and return it. Raise TimeoutError after `timeout` seconds. A platform that is
        unreachable for less than `patience` seconds is waited for."""
        return self._transport.wait(_path(preflight_id), _has_ended, preflight_id, timeout, patience)


def _has_ended(found: PreflightDetail) -> bool:
    return found["status"] in ("done", "failed")


def _path(preflight_id: str, rest: str = "") -> str:
    return f"/preflights/{quote(preflight_id, safe='')}{rest}"
