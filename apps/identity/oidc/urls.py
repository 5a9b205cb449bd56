from django.urls import path

from apps.identity.oidc import logout, views

urlpatterns = [
    path("oidc/<str:provider_id>/login/callback/", views.complete_sign_in, name="openid_connect_callback"),
    path("backchannel-logout/<str:provider_id>", logout.end_sessions_by_token),
]
