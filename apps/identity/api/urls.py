from django.urls import path

from apps.identity.api import exchange, views

PROVIDER = "identity-providers/<str:provider_id>"

RULES = "projects/<str:project_id>/exchange-rules"

urlpatterns = [
    path("token-exchange", exchange.TokenExchangeView.as_view()),
    path("exchange-issuers", exchange.ExchangeIssuersView.as_view()),
    path(RULES, exchange.ExchangeRulesView.as_view()),
    path(f"{RULES}/<str:rule_id>", exchange.ExchangeRuleView.as_view()),
    path("auth/providers", views.SignInProvidersView.as_view()),
    path("auth/providers/<str:provider_id>/start", views.SignInStartView.as_view()),
    path("identity-providers", views.IdentityProvidersView.as_view()),
    path(PROVIDER, views.IdentityProviderView.as_view()),
    path(f"{PROVIDER}/trial", views.IdentityProviderTrialView.as_view()),
    path(f"{PROVIDER}/links", views.IdentityProviderLinksView.as_view()),
]
