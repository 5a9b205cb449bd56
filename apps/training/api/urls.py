from django.urls import path

from apps.training.api import (
    drill_views,
    framework_views,
    preflight_views,
    pulse_views,
    rules_views,
    template_views,
    views,
)

TASK = "training-tasks/<str:task_id>"

urlpatterns = [
    path("training-tasks", views.TasksView.as_view()),
    path("training-tasks/preview", views.TaskPreviewView.as_view()),
    path("task-templates", template_views.TemplatesView.as_view()),
    path("task-templates/<str:template_id>", template_views.TemplateView.as_view()),
    path("preflights", preflight_views.PreflightsView.as_view()),
    path("preflights/between-zones", preflight_views.BetweenZonesView.as_view()),
    path("preflights/<str:preflight_id>", preflight_views.PreflightView.as_view()),
    path("preflights/<str:preflight_id>/stop", preflight_views.PreflightStopView.as_view()),
    path("drills", drill_views.DrillsView.as_view()),
    path("drills/<str:drill_id>", drill_views.DrillView.as_view()),
    path("drills/<str:drill_id>/stop", drill_views.DrillStopView.as_view()),
    path("projects/<str:project_id>/diagnosis-rules", rules_views.DiagnosisRulesView.as_view()),
    path("projects/<str:project_id>/diagnosis-rules/test", rules_views.DiagnosisRulesTestView.as_view()),
    path("frameworks", framework_views.FrameworksView.as_view()),
    path("frameworks/recommend", views.FrameworkRecommendView.as_view()),
    path(TASK, views.TaskView.as_view()),
    path(f"{TASK}/diagnosis", views.TaskDiagnosisView.as_view()),
    path(f"{TASK}/restart", views.TaskRestartView.as_view()),
    path(f"{TASK}/stop", views.TaskStopView.as_view()),
    path(f"{TASK}/grow", views.TaskGrowView.as_view()),
    path(f"{TASK}/retry", views.TaskRetryView.as_view()),
    path(f"{TASK}/clone", views.TaskCloneView.as_view()),
    path(f"{TASK}/events", views.TaskEventsView.as_view()),
    path(f"{TASK}/metrics", views.TaskMetricsView.as_view()),
    path(f"{TASK}/pulses", pulse_views.TaskPulsesView.as_view()),
    path(f"{TASK}/scaling", views.TaskScalingView.as_view()),
    path(f"{TASK}/checkpoints", views.TaskCheckpointsView.as_view()),
    path(f"{TASK}/plan", views.TaskPlanView.as_view()),
    path(f"{TASK}/scripts", views.TaskScriptsView.as_view()),
    path(f"{TASK}/logs", views.TaskLogsView.as_view()),
    path(f"{TASK}/logs/download", views.TaskLogDownloadView.as_view()),
    path(f"{TASK}/stream", views.TaskStreamView.as_view()),
]
