"""Endpoints of reservations and maintenance windows."""

from rest_framework import serializers

from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.errors import ApiError
from apps.common.openapi import DateTime, KeyField
from apps.common.pages import OrderingField, PageQuery
from apps.scheduling import models, reservation_presenter
from apps.scheduling.services import reservations

KINDS = [(kind, kind) for kind in ("reserved", "maintenance")]


class ReservationQuery(PageQuery):
    project = KeyField(required=False, allow_blank=True, help_text="id: those for it, and those of its environments")
    locals()["from"] = DateTime(required=False, help_text="those that end later; now by default")
    to = DateTime(required=False, help_text="those that begin earlier")
    ordering = OrderingField("beginsAt", beginsAt="begins_at", endsAt="ends_at")


class ReservationChangeRequest(serializers.Serializer):
    projectId = KeyField(
        source="project_id", allow_null=True, required=False, help_text="null: nobody gets them, they are maintained"
    )
    environmentIds = serializers.ListField(source="environment_ids", child=KeyField(), max_length=1024)
    beginsAt = DateTime(source="begins_at")
    endsAt = DateTime(source="ends_at")
    note = serializers.CharField(max_length=200, allow_blank=True, required=False)


class ReservationCreateRequest(ReservationChangeRequest):
    pass


class ReservedEnvironment(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()


class Reservation(serializers.Serializer):
    id = serializers.CharField()
    kind = serializers.ChoiceField(KINDS)
    projectId = serializers.CharField(allow_null=True, help_text="null: maintenance, or a project you are not in")
    projectName = serializers.CharField(help_text="empty: maintenance, or a project you are not in")
    environments = ReservedEnvironment(many=True, help_text="those that you may see")
    beginsAt = serializers.DateTimeField()
    endsAt = serializers.DateTimeField()
    note = serializers.CharField(help_text="empty for a project you are not in")
    createdAt = serializers.DateTimeField()
    createdBy = serializers.CharField()
    mayChange = serializers.BooleanField()


class ReservationsView(APIView):
    @operation("listReservations", scope="reservations:read", query=ReservationQuery, page=Reservation)
    def get(self, request: Request, query: Query) -> Data:
        """List reservations and maintenance windows: those of environments that you may see and those for your
        projects."""
        return paginate_rows(
            reservation_presenter.list_reservations(request.user, query),
            query,
            reservation_presenter.make_serializer(request.user),
        )

    @operation(
        "createReservation", scope="reservations:write", body=ReservationCreateRequest, data=Reservation, status=201
    )
    def post(self, request: Request, body: Body) -> Data:
        """Reserve environments for a project, or without one for maintenance (administrator; a maintainer those of
        their own projects)."""
        return _serialize_reservation(request, reservations.create_reservation(request.user, **body).pk)


class ReservationView(APIView):
    @operation("getReservation", scope="reservations:read", data=Reservation)
    def get(self, request: Request, reservation_id: str) -> Data:
        """Return one reservation or maintenance window."""
        return _serialize_reservation(request, reservation_id)

    @operation(
        "changeReservation", scope="reservations:write", body=ReservationChangeRequest, partial=True, data=Reservation
    )
    def patch(self, request: Request, reservation_id: str, body: Body) -> Data:
        """Change the time, the environments or the project of a reservation (same rights as for creating one)."""
        reservations.change_reservation(request.user, _get_reservation(request, reservation_id), body)
        return _serialize_reservation(request, reservation_id)

    @operation("deleteReservation", scope="reservations:write")
    def delete(self, request: Request, reservation_id: str) -> None:
        """Delete a reservation: its environments are available to all again (same rights as for creating one)."""
        reservations.delete_reservation(request.user, _get_reservation(request, reservation_id))


def _get_reservation(request: Request, reservation_id: str) -> models.Reservation:
    row = reservation_presenter.list_visible_reservations(request.user).filter(pk=reservation_id).first()
    if row is None:
        raise ApiError(404, "NOT_FOUND")
    return row


def _serialize_reservation(request: Request, reservation_id: str) -> Data:
    return reservation_presenter.make_serializer(request.user)(_get_reservation(request, reservation_id))
