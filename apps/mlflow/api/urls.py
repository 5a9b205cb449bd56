"""URLs of MLflow's REST API, below `/mlflow/`: what `MLFLOW_TRACKING_URI` names."""

from django.urls import path, re_path
from django.views.generic import RedirectView

from apps.mlflow.api import views

urlpatterns = [
    re_path(r"^api/[23]\.0/mlflow/(?P<path>.+)$", views.RoutesView.as_view()),
    path("api/2.0/mlflow-artifacts/artifacts", views.ArtifactView.as_view()),
    path("api/2.0/mlflow-artifacts/artifacts/<path:path>", views.ArtifactView.as_view()),
    path("health", views.answer_health),
    path("", RedirectView.as_view(url="/")),  # clients print …/#/experiments/…/runs/…; the console reads that
    re_path("", views.UnknownRouteView.as_view()),
]
