from django.urls import path

from apps.scheduling.api import operator_notices, prices, reservations

urlpatterns = [
    path("reservations", reservations.ReservationsView.as_view()),
    path("reservations/<str:reservation_id>", reservations.ReservationView.as_view()),
    path("notices", operator_notices.NoticesView.as_view()),
    path("prices", prices.PricesView.as_view()),
]
