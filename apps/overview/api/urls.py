from django.urls import path

from apps.overview.api import views

urlpatterns = [
    path("overview", views.OverviewView.as_view()),
    path("overview/attention", views.AttentionView.as_view()),
    path("overview/projects", views.ProjectsView.as_view()),
]
