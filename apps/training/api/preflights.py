"""Endpoints for pre-flight tests."""

from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.training.api import preflight_forms as forms
from apps.training.preflight import presenters as shapes
from apps.training.services import preflight as service


class PreflightsView(APIView):
    @operation("listPreflights", query=forms.PreflightQuery, page=forms.PreflightBrief)
    def get(self, request: Request, query: Query) -> Data:
        """The pre-flight tests of your projects, newest first."""
        return paginate_rows(service.list_preflights(request.user, query), query, shapes.serialize_brief)

    @operation("createPreflight", body=forms.PreflightCreateRequest, data=forms.PreflightDetail, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """Tests whether these environments can train together, as soon as they are free."""
        return shapes.serialize_detail(service.create_preflight(request.user, **body))


class BetweenZonesView(APIView):
    @operation("listLinksBetweenZones", query=forms.BetweenZonesQuery, data=forms.BetweenZones)
    def get(self, request: Request, query: Query) -> Data:
        """What the newest tests measured between environments of different zones."""
        return {"items": service.list_zone_links(request.user, query["environments"])}


class PreflightView(APIView):
    @operation("getPreflight", data=forms.PreflightDetail)
    def get(self, request: Request, preflight_id: str) -> Data:
        """One test: every node, every pair, and the verdict."""
        return shapes.serialize_detail(service.find_preflight(request.user, preflight_id))


class PreflightStopView(APIView):
    @operation("stopPreflight", data=forms.PreflightDetail)
    def post(self, request: Request, preflight_id: str) -> Data:
        """Ends a test. Asking again changes nothing."""
        return shapes.serialize_detail(service.stop_preflight(request.user, preflight_id))
