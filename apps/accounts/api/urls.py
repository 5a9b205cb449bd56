from django.urls import path

from apps.accounts.api import service_accounts, tokens, views

urlpatterns = [
    path("auth/me", views.MeView.as_view()),
    path("auth/sign-in", views.SignInView.as_view()),
    path("tokens", tokens.TokensView.as_view()),
    path("tokens/revoke", tokens.TokensRevokeView.as_view()),
    path("tokens/<str:token_id>", tokens.TokenView.as_view()),
    path("all-tokens", tokens.AllTokensView.as_view()),
    path("all-tokens/<str:token_id>", tokens.AnyTokenView.as_view()),
    path("projects/<str:project_id>/tokens", tokens.ProjectTokensView.as_view()),
    path("projects/<str:project_id>/tokens/<str:token_id>", tokens.ProjectTokenView.as_view()),
    path("saved-views", views.SavedViewsView.as_view()),
    path("saved-views/<str:view_id>", views.SavedViewView.as_view()),
    path("projects", views.ProjectsView.as_view()),
    path("projects/<str:project_id>", views.ProjectView.as_view()),
    path("projects/<str:project_id>/members", views.MembersView.as_view()),
    path("projects/<str:project_id>/members/<str:username>", views.MemberView.as_view()),
    path("projects/<str:project_id>/secrets", views.SecretsView.as_view()),
    path("projects/<str:project_id>/secrets/<path:name>", views.SecretView.as_view()),
    path("projects/<str:project_id>/service-accounts", service_accounts.ServiceAccountsView.as_view()),
    path("projects/<str:project_id>/service-accounts/<str:name>", service_accounts.ServiceAccountView.as_view()),
    path(
        "projects/<str:project_id>/service-accounts/<str:name>/tokens",
        service_accounts.ServiceAccountTokensView.as_view(),
    ),
    path("audit-events", views.AuditEventsView.as_view()),
]
