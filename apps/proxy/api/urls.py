from django.urls import path

from apps.proxy.api import views

urlpatterns = [
    path("dev-environments/<str:environment_id>/doors", views.DoorsView.as_view()),
]
