"""Paths of runs, below the base path. Fixed names come before those of tasks."""

from django.urls import path

from apps.runs.api import differences, records, series, table, views

urlpatterns = [
    path("run-views", views.RunViewsView.as_view()),
    path("runs", table.RunsView.as_view()),
    path("runs/bulk", records.RunsBulkView.as_view()),
    path("runs/columns", table.RunColumnsView.as_view()),
    path("runs/comparison", series.RunComparisonView.as_view()),
    path("runs/complete", table.RunCompletionView.as_view()),
    path("runs/differences", differences.RunDifferencesView.as_view()),
    path("runs/export", table.RunExportView.as_view()),
    path("runs/groups", table.RunGroupsView.as_view()),
    path("runs/series", series.RunSeriesView.as_view()),
    path("run-views/<str:view_id>", views.RunViewView.as_view()),
    path("runs/<str:task_id>", records.RunRecordView.as_view()),
    path("runs/<str:task_id>/facts", differences.RunFactsView.as_view()),
]
