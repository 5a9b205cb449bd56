from django.urls import path

from apps.identity.vendors import views

urlpatterns = [path("vendors/<str:provider_id>/login/callback/", views.complete_sign_in, name="vendor_login_callback")]
