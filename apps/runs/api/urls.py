"""Paths of runs, below the base path."""

from django.urls import path

from apps.runs.api import records, views

urlpatterns = [
    path("runs/bulk", records.RunsBulkView.as_view()),
    path("runs/<str:task_id>", records.RunRecordView.as_view()),
    path("run-views", views.RunViewsView.as_view()),
    path("run-views/<str:view_id>", views.RunViewView.as_view()),
]
