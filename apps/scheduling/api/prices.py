"""Endpoints of the price list."""

from rest_framework import serializers

from apps.common.api import APIView, Body, Data, Request, operation
from apps.common.openapi import KeyField
from apps.scheduling.services import prices

MAX_PRICES = 1000
MAX_PRICE = 1_000_000


class PriceRequest(serializers.Serializer):
    gpuType = serializers.CharField(max_length=40, allow_blank=True, default="", help_text="empty: any")
    zoneId = KeyField(allow_blank=True, default="", help_text="id or name; empty: any")
    perGpuHour = serializers.FloatField(min_value=0, max_value=MAX_PRICE)


class PricesRequest(serializers.Serializer):
    prices = serializers.ListField(child=PriceRequest(), max_length=MAX_PRICES)


class PriceItem(serializers.Serializer):
    gpuType = serializers.CharField(help_text="empty: any")
    zoneId = serializers.CharField(help_text="empty: any")
    zoneName = serializers.CharField()
    perGpuHour = serializers.FloatField()
    since = serializers.DateTimeField()


class PriceList(serializers.Serializer):
    """Prices per GPU-hour. The most specific one applies: of the type in the zone, of the type, of the zone, of any
    GPU."""

    currency = serializers.CharField()
    prices = PriceItem(many=True)


class PricesView(APIView):
    @operation("getPrices", scope="usage:read", data=PriceList)
    def get(self, request: Request) -> Data:
        """Return the price of a GPU-hour by GPU type and zone."""
        return prices.serialize_prices()

    @operation("putPrices", scope="usage:write", body=PricesRequest, data=PriceList)
    def put(self, request: Request, body: Body) -> Data:
        """Replace the whole price list (administrator). What tasks have used until now keeps its price."""
        return prices.replace_prices(request.user, body["prices"])
