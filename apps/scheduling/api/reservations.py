"""Endpoints of reservations and maintenance windows."""

from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.errors import ApiError
from apps.scheduling import reservation_presenter
from apps.scheduling.api import reservation_forms as forms
from apps.scheduling.models import Reservation
from apps.scheduling.services import reservations


class ReservationsView(APIView):
    @operation("listReservations", query=forms.ReservationQuery, page=forms.Reservation)
    def get(self, request: Request, query: Query) -> Data:
        """Which environments are set aside for whom, or maintained, and when: of those that you may see, and for your
        projects."""
        return paginate_rows(
            reservation_presenter.list_reservations(request.user, query),
            query,
            reservation_presenter.make_serializer(request.user),
        )

    @operation("createReservation", body=forms.ReservationCreateRequest, data=forms.Reservation, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """Sets environments aside for a project, or for maintenance without one (administrator; a maintainer those of
        their own projects)."""
        return _serialize_reservation(request, reservations.create_reservation(request.user, **body).pk)


class ReservationView(APIView):
    @operation("getReservation", data=forms.Reservation)
    def get(self, request: Request, reservation_id: str) -> Data:
        """One reservation or maintenance window."""
        return _serialize_reservation(request, reservation_id)

    @operation("changeReservation", body=forms.ReservationChangeRequest, partial=True, data=forms.Reservation)
    def patch(self, request: Request, reservation_id: str, body: Body) -> Data:
        """Another time, other environments, another project (as for making one)."""
        reservations.change_reservation(request.user, _get_reservation(request, reservation_id), body)
        return _serialize_reservation(request, reservation_id)

    @operation("deleteReservation")
    def delete(self, request: Request, reservation_id: str) -> None:
        """The environments are open again (as for making one)."""
        reservations.delete_reservation(request.user, _get_reservation(request, reservation_id))


def _get_reservation(request: Request, reservation_id: str) -> Reservation:
    row = reservation_presenter.list_visible_reservations(request.user).filter(pk=reservation_id).first()
    if row is None:
        raise ApiError(404, "NOT_FOUND")
    return row


def _serialize_reservation(request: Request, reservation_id: str) -> Data:
    return reservation_presenter.make_serializer(request.user)(_get_reservation(request, reservation_id))
