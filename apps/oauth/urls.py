from django.urls import path, re_path

from apps.common.api import UnknownPathView
from apps.oauth import views

urlpatterns = [
    path("oauth/token", views.issue_token),
    path("oauth/revoke", views.revoke_token),
    path("oauth/device/code", views.issue_device_code),
    path("oauth/clients", views.register_client),
    path(".well-known/oauth-authorization-server", views.serve_server_metadata),
    re_path(r"^\.well-known/oauth-protected-resource(?P<path>(/.*)?)$", views.serve_resource_metadata),
    re_path(r"^\.well-known/", UnknownPathView.as_view()),
]
