from django.urls import path

from apps.agents.api import views

TOKEN, PROPOSAL = "agent-tokens/<str:token_id>", "proposals/<str:proposal_id>"

urlpatterns = [
    path("agent-tokens", views.AgentTokensView.as_view()),
    path("agent-tokens/own", views.OwnPurseView.as_view()),
    path(TOKEN, views.AgentTokenView.as_view()),
    path(f"{TOKEN}/events", views.AgentEventsView.as_view()),
    path("proposals", views.ProposalsView.as_view()),
    path(PROPOSAL, views.ProposalView.as_view()),
    path(f"{PROPOSAL}/approve", views.ProposalApproveView.as_view()),
    path(f"{PROPOSAL}/decline", views.ProposalDeclineView.as_view()),
    path("audit-events/<str:event_id>/undo", views.AuditEventUndoView.as_view()),
]
