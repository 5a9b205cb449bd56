from django.urls import path

from apps.directory.api import directories, views

urlpatterns = [
    path("directories", directories.DirectoriesView.as_view()),
    path("directories/<str:directory_id>", directories.DirectoryView.as_view()),
    path("directories/<str:directory_id>/tokens", directories.DirectoryTokensView.as_view()),
    path("directories/<str:directory_id>/tokens/<str:token_id>", directories.DirectoryTokenView.as_view()),
    path("role-rules", views.RoleRulesView.as_view()),
    path("role-rules/preview", views.RoleRulePreviewView.as_view()),
    path("role-rules/<str:rule_id>", views.RoleRuleView.as_view()),
]
