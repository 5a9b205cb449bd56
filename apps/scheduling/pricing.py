"""Prices of GPU-hours, present and past. The most specific price applies: of the type in the zone, of the type, of the
zone, of any."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from apps.scheduling.models import Price

PriceRow = tuple[datetime, Decimal | None]


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices by GPU type and zone id, each empty for any: pairs of a moment and the price from then on, oldest first;
    None: no price from then on."""

    prices: Mapping[tuple[str, str], Sequence[PriceRow]] = field(default_factory=dict)

    def find_price(self, gpu_type: str, zone: str, at: datetime) -> Decimal | None:
        """Return the price of one GPU for an hour at that moment, or None if there is none."""
        exact = ((gpu_type, zone), (gpu_type, ""), ("", zone), ("", ""))
        found = (self.at(key, at) for key in exact)
        return next((row[1] for row in found if row and row[1] is not None), None)

    def at(self, key: tuple[str, str], at: datetime) -> PriceRow | None:
        rows = self.prices.get(key, ())
        number = bisect_right(rows, at, key=lambda row: row[0])
        return rows[number - 1] if number else None

    def list_prices(self, at: datetime) -> Iterator[tuple[tuple[str, str], datetime, Decimal]]:
        """Yield what had a price at that moment, since when, and which."""
        for key in sorted(self.prices):
            row = self.at(key, at)
            if row and row[1] is not None:
                yield key, row[0], row[1]


def read_prices() -> PriceTable:
    """Read all prices, in one query."""
    known: defaultdict[tuple[str, str], list[PriceRow]] = defaultdict(list)
    rows = Price.objects.order_by("since", "pk").values_list("gpu_type", "zone_id", "since", "per_gpu_hour")
    for gpu_type, zone, since, price in rows:
        known[gpu_type, zone or ""].append((since, price))
    return PriceTable(known)
