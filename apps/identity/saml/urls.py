from django.urls import path

from apps.identity.saml import views

urlpatterns = [
    path("saml/<str:provider_id>/acs/", views.receive_response, name="saml_acs"),
    path("saml/<str:provider_id>/acs/finish/", views.complete_sign_in, name="saml_finish_acs"),
    path("saml/<str:provider_id>/metadata/", views.serve_metadata, name="saml_metadata"),
]
