"""URLs of training's endpoints."""

from django.urls import path

from apps.training.api import (
    diagnosis_rules,
    frameworks,
    limits,
    outputs,
    queue,
    rank_progress,
    telemetry,
    templates,
    views,
)
from apps.training.api.code import TaskCodeSourceView, TaskCodeView
from apps.training.drills import api as drills_api
from apps.training.preflight import api as preflight_api
from apps.training.usage import api as usage_api

TASK = "training-tasks/<str:task_id>"

urlpatterns = [
    path("training-tasks/<str:task_id>/code", TaskCodeView.as_view()),
    path("training-tasks/<str:task_id>/code/source", TaskCodeSourceView.as_view()),
    path("training-tasks", views.TasksView.as_view()),
    path("training-tasks/preview", views.TaskPreviewView.as_view()),
    path("task-templates", templates.TemplatesView.as_view()),
    path("task-templates/<str:template_id>", templates.TemplateView.as_view()),
    path("preflights", preflight_api.PreflightsView.as_view()),
    path("preflights/between-zones", preflight_api.BetweenZonesView.as_view()),
    path("preflights/<str:preflight_id>", preflight_api.PreflightView.as_view()),
    path("preflights/<str:preflight_id>/stop", preflight_api.PreflightStopView.as_view()),
    path("drills", drills_api.DrillsView.as_view()),
    path("drills/<str:drill_id>", drills_api.DrillView.as_view()),
    path("drills/<str:drill_id>/stop", drills_api.DrillStopView.as_view()),
    path("projects/<str:project_id>/diagnosis-rules", diagnosis_rules.DiagnosisRulesView.as_view()),
    path("projects/<str:project_id>/diagnosis-rules/test", diagnosis_rules.DiagnosisRulesTestView.as_view()),
    path("projects/<str:project_id>/limits", limits.LimitsView.as_view()),
    path("projects/<str:project_id>/limits/users", limits.UsersLimitsView.as_view()),
    path("projects/<str:project_id>/limits/users/<str:username>", limits.UserLimitsView.as_view()),
    path("frameworks", frameworks.FrameworksView.as_view()),
    path("frameworks/recommend", views.FrameworkRecommendView.as_view()),
    path("queue", queue.QueueView.as_view()),
    path("environments/timeline", queue.TimelineView.as_view()),
    path(TASK, views.TaskView.as_view()),
    path(f"{TASK}/diagnosis", views.TaskDiagnosisView.as_view()),
    path(f"{TASK}/queue", queue.TaskQueueView.as_view()),
    path(f"{TASK}/move", queue.TaskMoveView.as_view()),
    path(f"{TASK}/restart", views.TaskRestartView.as_view()),
    path(f"{TASK}/stop", views.TaskStopView.as_view()),
    path("usage", usage_api.UsageView.as_view()),
    path(f"{TASK}/usage", usage_api.TaskUsageView.as_view()),
    path(f"{TASK}/pause", views.TaskPauseView.as_view()),
    path(f"{TASK}/resume", views.TaskResumeView.as_view()),
    path(f"{TASK}/grow", views.TaskGrowView.as_view()),
    path(f"{TASK}/retry", views.TaskRetryView.as_view()),
    path(f"{TASK}/clone", views.TaskCloneView.as_view()),
    path(f"{TASK}/events", views.TaskEventsView.as_view()),
    path(f"{TASK}/metrics", views.TaskMetricsView.as_view()),
    path(f"{TASK}/pulses", rank_progress.TaskPulsesView.as_view()),
    path(f"{TASK}/telemetry", telemetry.TaskTelemetryView.as_view()),
    path(f"{TASK}/telemetry/now", telemetry.TaskUseView.as_view()),
    path("dev-environments/<str:environment_id>/telemetry", telemetry.EnvironmentTelemetryView.as_view()),
    path(f"{TASK}/scaling", views.TaskScalingView.as_view()),
    path(f"{TASK}/checkpoints", views.TaskCheckpointsView.as_view()),
    path(f"{TASK}/checkpoints/content", outputs.TaskCheckpointContentView.as_view()),
    path(f"{TASK}/outputs", outputs.TaskOutputsView.as_view()),
    path(f"{TASK}/outputs/summary", outputs.TaskOutputsSummaryView.as_view()),
    path(f"{TASK}/outputs/content", outputs.TaskOutputContentView.as_view()),
    path(f"{TASK}/outputs/archive", outputs.TaskOutputArchiveView.as_view()),
    path(f"{TASK}/plan", views.TaskPlanView.as_view()),
    path(f"{TASK}/scripts", views.TaskScriptsView.as_view()),
    path(f"{TASK}/logs", views.TaskLogsView.as_view()),
    path(f"{TASK}/logs/first-error", views.TaskFirstErrorView.as_view()),
    path(f"{TASK}/logs/download", views.TaskLogDownloadView.as_view()),
    path(f"{TASK}/stream", views.TaskStreamView.as_view()),
]
