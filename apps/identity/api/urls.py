from django.urls import path

from apps.identity.api import views

PROVIDER = "identity-providers/<str:provider_id>"

urlpatterns = [
    path("auth/providers", views.SignInProvidersView.as_view()),
    path("auth/providers/<str:provider_id>/start", views.SignInStartView.as_view()),
    path("auth/sign-out", views.SignOutView.as_view()),
    path("identity-providers", views.IdentityProvidersView.as_view()),
    path(PROVIDER, views.IdentityProviderView.as_view()),
    path(f"{PROVIDER}/trial", views.IdentityProviderTrialView.as_view()),
    path(f"{PROVIDER}/links", views.IdentityProviderLinksView.as_view()),
]
