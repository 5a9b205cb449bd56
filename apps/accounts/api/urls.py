from django.urls import path

from apps.accounts.api import audit, people, views

urlpatterns = [
    path("auth/me", views.MeView.as_view()),
    path("auth/sign-in", views.SignInView.as_view()),
    path("tokens", views.TokensView.as_view()),
    path("tokens/<str:token_id>", views.TokenView.as_view()),
    path("saved-views", views.SavedViewsView.as_view()),
    path("saved-views/<str:view_id>", views.SavedViewView.as_view()),
    path("projects", views.ProjectsView.as_view()),
    path("projects/<str:project_id>", views.ProjectView.as_view()),
    path("projects/<str:project_id>/members", views.MembersView.as_view()),
    path("projects/<str:project_id>/members/<str:username>", views.MemberView.as_view()),
    path("projects/<str:project_id>/secrets", views.SecretsView.as_view()),
    path("projects/<str:project_id>/secrets/<path:name>", views.SecretView.as_view()),
    path("sessions", people.SessionsView.as_view()),
    path("sessions/end", people.SessionsEndView.as_view()),
    path("sessions/<str:session_id>", people.SessionView.as_view()),
    path("people", people.PeopleView.as_view()),
    path("people/<str:username>", people.PersonView.as_view()),
    path("people/<str:username>/invitation", people.InvitationView.as_view()),
    path("people/<str:username>/second-factors", people.SecondFactorsView.as_view()),
    path("people/<str:username>/sessions", people.PersonSessionsView.as_view()),
    path("people/<str:username>/sessions/end", people.PersonSessionsEndView.as_view()),
    path("people/<str:username>/sessions/<str:session_id>", people.PersonSessionView.as_view()),
    path("audit-events", audit.AuditEventsView.as_view()),
    path("audit-events/export", audit.AuditExportView.as_view()),
]
