"""The price list: visible to all users, replaced as a whole by administrators. What was booked keeps its price."""

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import transaction

from apps.accounts import access, audit
from apps.accounts.models import User
from apps.clusters.models import AvailabilityZone
from apps.clusters.selectors import read_zone_ids
from apps.common.clock import now
from apps.common.errors import ProblemsError
from apps.scheduling import pricing
from apps.scheduling.models import Price
from fermi.jobs.spec import Problem

PRICE_STEP = Decimal("0.0001")
"""Precision of prices."""

PriceKey = tuple[str, str]


def serialize_prices() -> dict[str, Any]:
    """Return the price list."""
    names = dict(AvailabilityZone.objects.values_list("pk", "name"))
    items = [
        {
            "gpuType": gpu_type,
            "zoneId": zone,
            "zoneName": names.get(zone, ""),
            "perGpuHour": float(price),
            "since": since,
        }
        for (gpu_type, zone), since, price in pricing.read_prices().list_prices(now())
    ]
    return {"currency": settings.CURRENCY, "prices": items}


@transaction.atomic
def replace_prices(user: User, items: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Replace all prices from now on (administrator). Raises ProblemsError."""
    access.require_administrator(user)
    _store_changes(user, lambda before: _parse_prices(items))
    return serialize_prices()


@transaction.atomic
def set_price(user: User, gpu_type: str, zone: str, price: Decimal | None) -> None:
    """Set one price from now on; None: it has no price of its own (administrator)."""
    access.require_administrator(user)
    one = {(gpu_type, zone): price}
    _store_changes(user, lambda before: {key: price for key, price in {**before, **one}.items() if price is not None})


def _store_changes(user: User, after: Callable[[Mapping[PriceKey, Decimal]], Mapping[PriceKey, Decimal]]) -> None:
    moment = now()
    before = {key: price for key, _, price in pricing.read_prices().list_prices(moment)}
    asked = after(before)
    changed = {key: asked.get(key) for key in {*before, *asked} if before.get(key) != asked.get(key)}
    Price.objects.bulk_create(
        Price(gpu_type=gpu_type, zone_id=zone or None, per_gpu_hour=price, since=moment)
        for (gpu_type, zone), price in sorted(changed.items())
    )
    if changed:
        audit.record_event(user, "prices.set", "prices", before=_describe_prices(before), after=_describe_prices(asked))


def _parse_prices(items: Iterable[Mapping[str, Any]]) -> dict[PriceKey, Decimal]:
    zones = read_zone_ids()
    asked: dict[PriceKey, Decimal] = {}
    wrong = []
    for number, one in enumerate(items):
        named = one["zoneId"]
        key = (one["gpuType"], zones.get(named, "") if named else "")
        if named and not key[1]:
            wrong.append(Problem(f"prices.{number}.zoneId", "ZONE_UNKNOWN", {"zone": named}))
        elif key in asked:
            wrong.append(Problem(f"prices.{number}", "PRICE_TWICE", {"type": key[0] or "*", "zone": named or "*"}))
        else:
            asked[key] = Decimal(repr(one["perGpuHour"])).quantize(PRICE_STEP)
    if wrong:
        raise ProblemsError(wrong)
    return asked


def _describe_prices(prices: Mapping[PriceKey, Decimal]) -> dict[str, str]:
    """Return the prices by `type@zone`, with `*` for any."""
    return {f"{gpu_type or '*'}@{zone or '*'}": str(price) for (gpu_type, zone), price in sorted(prices.items())}
