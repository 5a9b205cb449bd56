"""Endpoints of the price list."""

from apps.common.api import APIView, Body, Data, Request, operation
from apps.scheduling.api import price_forms as forms
from apps.scheduling.services import prices


class PricesView(APIView):
    @operation("getPrices", data=forms.PriceList)
    def get(self, request: Request) -> Data:
        """What a GPU costs for an hour, by type and zone."""
        return prices.serialize_prices()

    @operation("putPrices", body=forms.PricesRequest, data=forms.PriceList)
    def put(self, request: Request, body: Body) -> Data:
        """Replaces the whole list (administrator). What tasks have held until now keeps its price."""
        return prices.replace_prices(request.user, body["prices"])
