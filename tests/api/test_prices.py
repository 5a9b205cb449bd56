"""The price list: who may see and change it, what is refused, and that what was held keeps its price."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from apps.accounts.models import AuditEvent
from apps.clusters.models import AvailabilityZone
from apps.common.clock import now
from apps.scheduling import pricing
from apps.scheduling.models import Price
from tests.api.conftest import Api

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments")]


def replace_prices(api: Api, *prices: tuple[str, str, float]) -> Any:
    body = [{"gpuType": kind, "zoneId": zone, "perGpuHour": price} for kind, zone, price in prices]
    return api.put("/prices", {"prices": body})


def listed(api: Api) -> list[tuple[str, str, float]]:
    return [(one["gpuType"], one["zoneId"], one["perGpuHour"]) for one in api.get("/prices").data["prices"]]


def test_everyone_reads_prices_and_administrators_set_them(admin: Api, owner: Api, stranger: Api) -> None:
    assert owner.get("/prices").data == {"currency": "CNY", "prices": []}
    assert replace_prices(owner, ("", "", 1.0)).error == "FORBIDDEN"
    assert replace_prices(admin, ("A100", "", 12.5), ("", "", 2)).status == 200
    assert listed(stranger) == [("", "", 2.0), ("A100", "", 12.5)]
    assert (Api().get("/prices").status, replace_prices(Api()).status) == (401, 401)
    told = AuditEvent.objects.get(action="prices.set")
    assert (told.actor, told.data["before"]) == (admin.user, {})
    assert told.data["after"] == {"*@*": "2.0000", "A100@*": "12.5000"}


def test_a_new_price_list_replaces_the_old_one_and_unchanged_prices_keep_their_start(admin: Api) -> None:
    replace_prices(admin, ("A100", "", 10), ("V100", "", 5))
    since = {one["gpuType"]: one["since"] for one in admin.get("/prices").data["prices"]}
    replace_prices(admin, ("A100", "", 10), ("", "", 1))
    assert listed(admin) == [("", "", 1.0), ("A100", "", 10.0)]
    assert admin.get("/prices").data["prices"][1]["since"] == since["A100"]
    assert replace_prices(admin, ("A100", "", 10), ("", "", 1)).status == 200
    assert AuditEvent.objects.filter(action="prices.set").count() == 2, "the third one changed nothing"


def test_a_zone_is_given_by_id_or_name_and_must_exist(admin: Api) -> None:
    zone = AvailabilityZone.objects.first()
    assert zone
    assert replace_prices(admin, ("", zone.name, 3)).status == 200
    assert listed(admin) == [("", zone.pk, 3.0)]
    assert replace_prices(admin, ("", "moon", 3)).problems == {"prices.0.zoneId": "ZONE_UNKNOWN"}
    assert replace_prices(admin, ("", zone.pk, 3), ("", zone.name, 4)).problems == {"prices.1": "PRICE_TWICE"}
    assert replace_prices(admin, ("", "", -1)).problems == {"prices.0.perGpuHour": "FIELD_RANGE"}
    assert listed(admin) == [("", zone.pk, 3.0)], "what is refused changes nothing"


def test_the_most_specific_price_of_the_moment_applies() -> None:
    zone, moment = AvailabilityZone.objects.first(), now()
    assert zone

    def price(days: int, amount: int | None, gpu_type: str = "", where: AvailabilityZone | None = None) -> None:
        Price.objects.create(
            gpu_type=gpu_type, zone=where, since=moment - timedelta(days=days), per_gpu_hour=amount
        )  # fmt: skip

    price(9, 1)
    price(8, 2, where=zone)
    price(7, 3, "A100")
    price(6, 4, "A100", zone)
    price(1, None, "A100", zone)
    known = pricing.read_prices()

    def at(days: float, gpu_type: str = "A100", where: str = zone.pk) -> Decimal | None:
        return known.find_price(gpu_type, where, moment - timedelta(days=days))

    assert [at(days) for days in (10, 8.5, 7.5, 6.5, 2, 0)] == [None, 1, 2, 3, 4, 3]
    assert (at(0, "V100"), at(0, "V100", "elsewhere"), at(0, "A100", "elsewhere")) == (2, 1, 3)
