"""Sweeps: many trials of one request with other parameters."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.transport import MAX_OUTAGE_SECONDS, Transport
from fermi.client.types import ClonedTask, Sweep, SweepImportance, SweepItem, SweepPreview, SweepTrial


class Sweeps:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, sweep: Mapping[str, Any]) -> Sweep:
        """Create a sweep; its first trials start at once."""
        return self._transport.call("POST", "/sweeps", json=dict(sweep))

    def preview(self, sweep: Mapping[str, Any]) -> SweepPreview:
        """Return what a sweep would do, and all that is wrong with it; nothing is stored."""
        return self._transport.call("POST", "/sweeps/preview", json=dict(sweep), repeatable=True)

    def list(
        self, *, status: Sequence[str] = (), project: str | None = None, search: str | None = None
    ) -> Listing[SweepItem]:
        """Return sweeps, newest first."""
        return Listing(
            self._transport, "/sweeps", {"status": list(status) or None, "project": project, "search": search}
        )

    def get(self, sweep_id: str) -> Sweep:
        """Return the sweep with its best trial."""
        return self._transport.call("GET", _path(sweep_id))

    def trials(self, sweep_id: str, *, status: Sequence[str] = (), ordering: str | None = None) -> Listing[SweepTrial]:
        """Return the sweep's trials, each with why it waits, was paused, or ended as it did."""
        query = {"status": list(status) or None, "ordering": ordering}
        return Listing(self._transport, _path(sweep_id, "/trials"), query)

    def importance(self, sweep_id: str) -> SweepImportance:
        """Return how much each parameter matters for the objective."""
        return self._transport.call("GET", _path(sweep_id, "/importance"))

    def pause(self, sweep_id: str) -> Sweep:
        """Start no further trial; those that run go on. Repeating the request changes nothing."""
        return self._transport.call("POST", _path(sweep_id, "/pause"), repeatable=True)

    def resume(self, sweep_id: str) -> Sweep:
        """Start trials again. Repeating the request changes nothing."""
        return self._transport.call("POST", _path(sweep_id, "/resume"), repeatable=True)

    def stop(self, sweep_id: str) -> Sweep:
        """Stop the sweep and its trials. Repeating the request changes nothing."""
        return self._transport.call("POST", _path(sweep_id, "/stop"), repeatable=True)

    def delete(self, sweep_id: str) -> None:
        """Delete a sweep that has ended. The tasks of its trials stay."""
        self._transport.call("DELETE", _path(sweep_id))

    def clone_best(
        self,
        sweep_id: str,
        *,
        name: str | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        args: Sequence[str] = (),
        resume: bool = True,
    ) -> ClonedTask:
        """Create a task with the parameters of the best trial. `hyperparameters` replace those of the trial, `args`
        follow the script's others; with `resume` it goes on from the trial's newest checkpoint."""
        body = {
            "taskName": name,
            "hyperparameters": dict(hyperparameters) if hyperparameters else None,
            "args": list(args) or None,
            "resume": resume,
        }
        given = {key: value for key, value in body.items() if value is not None}
        return self._transport.call("POST", _path(sweep_id, "/clone-best"), json=given)

    def wait(self, sweep_id: str, *, timeout: float | None = None, patience: float = MAX_OUTAGE_SECONDS) -> Sweep:
        """Wait for the sweep's end and return it. Raise TimeoutError after `timeout` seconds. A platform that is
        unreachable for less than `patience` seconds is waited for."""
        return self._transport.wait(_path(sweep_id), _has_ended, sweep_id, timeout, patience)


def _has_ended(found: Sweep) -> bool:
    return found["status"] == "ended"


def _path(sweep_id: str, rest: str = "") -> str:
    return f"/sweeps/{quote(sweep_id, safe='')}{rest}"
