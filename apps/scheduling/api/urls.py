from django.urls import path

from apps.scheduling.api import notice_views, price_views, reservation_views

urlpatterns = [
    path("reservations", reservation_views.ReservationsView.as_view()),
    path("reservations/<str:reservation_id>", reservation_views.ReservationView.as_view()),
    path("notices", notice_views.NoticesView.as_view()),
    path("prices", price_views.PricesView.as_view()),
]
