from django.urls import path

from apps.environments.api import memory, packages, views

ONE = "dev-environments/<str:environment_id>"

urlpatterns = [
    path("environment-templates", views.TemplatesView.as_view()),
    path("environment-templates/<str:template_id>", views.TemplateView.as_view()),
    path("dev-environments", views.EnvironmentsView.as_view()),
    path("dev-environments/make", views.MakeEnvironmentView.as_view()),
    path("dev-environments/packages", packages.PackagesView.as_view()),
    path("dev-environments/packages/level", packages.PackagesLevelView.as_view()),
    path("dev-environments/packages/level/<str:installation_id>", packages.PackagesInstallationView.as_view()),
    path(ONE, views.EnvironmentView.as_view()),
    path("projects/<str:project_id>/warm", views.ProjectWarmView.as_view()),
    path(f"{ONE}/start", views.StartView.as_view()),
    path(f"{ONE}/stop", views.StopView.as_view()),
    path(f"{ONE}/restart", views.RestartView.as_view()),
    path(f"{ONE}/keep", views.KeepView.as_view()),
    path(f"{ONE}/resize", views.ResizeView.as_view()),
    path(f"{ONE}/clone", views.CloneView.as_view()),
    path(f"{ONE}/logs", views.LogsView.as_view()),
    path(f"{ONE}/life", views.LifeView.as_view()),
    path(f"{ONE}/memory", memory.MemoryView.as_view()),
    path(f"{ONE}/kernels/<str:kernel_id>/end", memory.KernelEndView.as_view()),
    path(f"{ONE}/ask-owner", memory.AskOwnerView.as_view()),
]
