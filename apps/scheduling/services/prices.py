"""The price list: visible to all users, replaced as a whole by administrators. What was booked keeps its price."""

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import transaction

from apps.accounts import access, audit
from apps.accounts.models import User
from apps.clusters.models import AvailabilityZone
from apps.clusters.selectors import zone_ids
from apps.common.clock import now
from apps.common.errors import ProblemsError
from apps.scheduling import pricing
from apps.scheduling.models import Price
from fermi.jobs.spec import Problem

CENT = Decimal("0.0001")
"""Precision of prices."""

Key = tuple[str, str]


def listed() -> dict[str, Any]:
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
        for (gpu_type, zone), since, price in pricing.prices().listed(now())
    ]
    return {"currency": settings.CURRENCY, "prices": items}


@transaction.atomic
def put(user: User, given: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Replace all prices from now on (administrator). Raises ProblemsError."""
    access.require_administrator(user)
    _replace(user, lambda before: _asked(given))
    return listed()


@transaction.atomic
def put_one(user: User, gpu_type: str, zone: str, price: Decimal | None) -> None:
    """Set one price from now on; None: it has no price of its own (administrator)."""
    access.require_administrator(user)
    one = {(gpu_type, zone): price}
    _replace(user, lambda before: {key: price for key, price in {**before, **one}.items() if price is not None})


def _replace(user: User, after: Callable[[Mapping[Key, Decimal]], Mapping[Key, Decimal]]) -> None:
    moment = now()
    before = {key: price for key, _, price in pricing.prices().listed(moment)}
    asked = after(before)
    changed = {key: asked.get(key) for key in {*before, *asked} if before.get(key) != asked.get(key)}
    Price.objects.bulk_create(
        Price(gpu_type=gpu_type, zone_id=zone or None, per_gpu_hour=price, since=moment)
        for (gpu_type, zone), price in sorted(changed.items())
    )
    if changed:
        audit.record(user, "prices.set", "prices", before=_told(before), after=_told(asked))


def _asked(given: Iterable[Mapping[str, Any]]) -> dict[Key, Decimal]:
    zones = zone_ids()
    asked: dict[Key, Decimal] = {}
    wrong = []
    for number, one in enumerate(given):
        named = one["zoneId"]
        key = (one["gpuType"], zones.get(named, "") if named else "")
        if named and not key[1]:
            wrong.append(Problem(f"prices.{number}.zoneId", "ZONE_UNKNOWN", {"zone": named}))
        elif key in asked:
            wrong.append(Problem(f"prices.{number}", "PRICE_TWICE", {"type": key[0] or "*", "zone": named or "*"}))
        else:
            asked[key] = Decimal(repr(one["perGpuHour"])).quantize(CENT)
    if wrong:
        raise ProblemsError(wrong)
    return asked


def _told(prices: Mapping[Key, Decimal]) -> dict[str, str]:
    """Return the prices by `type@zone`, with `*` for any."""
    return {f"{gpu_type or '*'}@{zone or '*'}": str(price) for (gpu_type, zone), price in sorted(prices.items())}
