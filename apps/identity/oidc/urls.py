from django.urls import path

from apps.identity.oidc import views

urlpatterns = [path("oidc/<str:provider_id>/login/callback/", views.complete_sign_in, name="openid_connect_callback")]
