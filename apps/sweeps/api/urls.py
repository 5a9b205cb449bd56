from django.urls import path

from apps.sweeps.api import views

urlpatterns = [
    path("sweeps", views.SweepsView.as_view()),
    path("sweeps/preview", views.SweepPreviewView.as_view()),
    path("sweeps/read-file", views.SweepFileView.as_view()),
    path("sweeps/<str:sweep_id>", views.SweepView.as_view()),
    path("sweeps/<str:sweep_id>/pause", views.SweepPauseView.as_view()),
    path("sweeps/<str:sweep_id>/resume", views.SweepResumeView.as_view()),
    path("sweeps/<str:sweep_id>/stop", views.SweepStopView.as_view()),
    path("sweeps/<str:sweep_id>/trials", views.SweepTrialsView.as_view()),
    path("sweeps/<str:sweep_id>/importance", views.SweepImportanceView.as_view()),
    path("sweeps/<str:sweep_id>/clone-best", views.SweepCloneBestView.as_view()),
]
