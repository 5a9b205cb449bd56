from django.urls import path

from apps.oauth.api import views

urlpatterns = [
    path("oauth/authorizations", views.AuthorizationsView.as_view()),
    path("oauth/authorizations/describe", views.AuthorizationDescriptionView.as_view()),
    path("oauth/devices", views.DevicesView.as_view()),
    path("oauth/devices/describe", views.DeviceDescriptionView.as_view()),
    path("oauth/grants", views.GrantsView.as_view()),
    path("oauth/grants/<str:grant_id>", views.GrantView.as_view()),
]
