from django.urls import path

from apps.workers.api import views

WORKER, GROUP = "workers/<str:worker_id>", "worker-groups/<str:group_id>"

urlpatterns = [
    path("workers", views.WorkersView.as_view()),
    path("workers/register", views.WorkerRegisterView.as_view()),
    path("workers/heartbeat", views.WorkerHeartbeatView.as_view()),
    path("workers/join-tokens", views.JoinTokensView.as_view()),
    path("workers/join-tokens/<str:token_id>", views.JoinTokenView.as_view()),
    path(WORKER, views.WorkerView.as_view()),
    path(f"{WORKER}/environment", views.WorkerEnvironmentView.as_view()),
    path(f"{WORKER}/telemetry", views.WorkerTelemetryView.as_view()),
    path(f"{WORKER}/order", views.WorkerOrderView.as_view()),
    path(f"{WORKER}/logs/<str:task_id>/<str:attempt>/<str:rank>", views.WorkerLogView.as_view()),
    path(f"{WORKER}/hosted/<str:run>", views.WorkerHostedView.as_view()),
    path(f"{WORKER}/hosted/<str:run>/log", views.WorkerHostedLogView.as_view()),
    path("worker-groups", views.GroupsView.as_view()),
    path("worker-groups/move", views.GroupMoveView.as_view()),
    path(GROUP, views.GroupView.as_view()),
    path(f"{GROUP}/start", views.GroupStartView.as_view()),
    path(f"{GROUP}/stop", views.GroupStopView.as_view()),
    path(f"{GROUP}/restart", views.GroupRestartView.as_view()),
]
