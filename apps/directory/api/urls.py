from django.urls import path

from apps.directory.api import views

urlpatterns = [
    path("role-rules", views.RoleRulesView.as_view()),
    path("role-rules/preview", views.RoleRulePreviewView.as_view()),
    path("role-rules/<str:rule_id>", views.RoleRuleView.as_view()),
]
