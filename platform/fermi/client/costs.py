"""Usage and cost of tasks, and the price list."""

from collections.abc import Sequence
from typing import Any, Literal

from fermi.client.transport import Transport
from fermi.client.types import PriceList, PriceRequest, UsageReport

UsageGrouping = Literal["task", "user", "project", "environment", "month"]


class Costs:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def usage(
        self,
        by: UsageGrouping = "project",
        *,
        project: str | None = None,
        begins: str | None = None,
        ends: str | None = None,
    ) -> UsageReport:
        """Return GPU-hours between two moments (ISO 8601; by default this month so far, in UTC), largest first."""
        return self._transport.call("GET", "/usage", params=_build_params(by, project, begins, ends))

    def usage_csv(
        self,
        by: UsageGrouping = "project",
        *,
        project: str | None = None,
        begins: str | None = None,
        ends: str | None = None,
    ) -> str:
        """Return the same as CSV, for a spreadsheet."""
        asked = {**_build_params(by, project, begins, ends), "format": "csv"}
        with self._transport.open("/usage", params=asked) as answer:
            return answer.read().decode()

    def prices(self) -> PriceList:
        """Return the price of a GPU per hour, by type and zone."""
        return self._transport.call("GET", "/prices")

    def set_prices(self, prices: Sequence[PriceRequest]) -> PriceList:
        """Replace the whole price list. Needs an administrator."""
        return self._transport.call("PUT", "/prices", json={"prices": [*prices]})


def _build_params(by: UsageGrouping, project: str | None, begins: str | None, ends: str | None) -> dict[str, Any]:
    return {"by": by, "project": project, "from": begins, "to": ends}
