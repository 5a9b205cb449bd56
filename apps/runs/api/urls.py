"""Paths of runs, below the base path. Fixed names come before those of tasks."""

from django.urls import path

from apps.runs.api import records, series, views

urlpatterns = [
    path("run-views", views.RunViewsView.as_view()),
    path("runs/bulk", records.RunsBulkView.as_view()),
    path("runs/comparison", series.RunComparisonView.as_view()),
    path("runs/series", series.RunSeriesView.as_view()),
    path("run-views/<str:view_id>", views.RunViewView.as_view()),
    path("runs/<str:task_id>", records.RunRecordView.as_view()),
]
