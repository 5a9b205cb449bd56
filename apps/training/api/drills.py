"""Endpoints for drills."""

from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.training.api import drill_forms as forms
from apps.training.drills import presenters as shapes
from apps.training.services import drills as service


class DrillsView(APIView):
    @operation("listDrills", query=forms.DrillQuery, page=forms.Drill)
    def get(self, request: Request, query: Query) -> Data:
        """The drills of your projects, newest first."""
        return paginate_rows(service.list_drills(request.user, query), query, shapes.serialize_drill)

    @operation("createDrill", body=forms.DrillCreateRequest, data=forms.Drill, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """Rehearses a restart, as soon as the environments are free: a rank is killed once there is a checkpoint."""
        return shapes.serialize_drill(service.request_drill(request.user, **body))


class DrillView(APIView):
    @operation("getDrill", data=forms.Drill)
    def get(self, request: Request, drill_id: str) -> Data:
        """One drill: whether training resumed, from where, and what it cost."""
        return shapes.serialize_drill(service.find_drill(request.user, drill_id))


class DrillStopView(APIView):
    @operation("stopDrill", data=forms.Drill)
    def post(self, request: Request, drill_id: str) -> Data:
        """Ends a drill. Asking again changes nothing."""
        return shapes.serialize_drill(service.stop_drill(request.user, drill_id))
