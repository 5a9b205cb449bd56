"""What runs ran with, and what differs between two of them."""

from urllib.parse import quote

from fermi.client.transport import Transport
from fermi.client.types import RunDifferences, RunFactsAnswer


class Differences:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def compare(self, left: str, right: str) -> RunDifferences:
        """Return what differs between two tasks, the likeliest cause of another result first."""
        return self._transport.call("GET", "/runs/differences", params={"left": left, "right": right})

    def facts(self, task_id: str, attempt: int | None = None) -> RunFactsAnswer:
        """Return what the nodes of an attempt ran with, by default of the newest that reported any."""
        return self._transport.call("GET", f"/runs/{quote(task_id, safe='')}/facts", params={"attempt": attempt})
