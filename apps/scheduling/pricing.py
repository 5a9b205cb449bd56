"""What a GPU-hour costs. The most exact price counts: of the type in the zone, of the type, of the zone, of any."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from apps.scheduling.models import Price


@dataclass(frozen=True, slots=True)
class Prices:
    """By GPU type and zone id, each empty for any: the newest price that has begun."""

    known: Mapping[tuple[str, str], Decimal] = field(default_factory=dict)

    def of(self, gpu_type: str, zone: str) -> Decimal | None:
        """Of one GPU for an hour; None: nobody has said."""
        exact = ((gpu_type, zone), (gpu_type, ""), ("", zone), ("", ""))
        return next((self.known[key] for key in exact if key in self.known), None)


def prices(at: datetime) -> Prices:
    """As they are at that moment; one query."""
    rows = (
        Price.objects.filter(since__lte=at).order_by("since", "pk").values_list("gpu_type", "zone_id", "per_gpu_hour")
    )
    return Prices({(gpu_type, zone or ""): price for gpu_type, zone, price in rows})
