from django.urls import path

from apps.environments.api import memory_views, packages_views, views

ONE = "dev-environments/<str:environment_id>"

urlpatterns = [
    path("environment-templates", views.TemplatesView.as_view()),
    path("environment-templates/<str:template_id>", views.TemplateView.as_view()),
    path("dev-environments", views.EnvironmentsView.as_view()),
    path("dev-environments/make", views.MakeEnvironmentView.as_view()),
    path("dev-environments/packages", packages_views.PackagesView.as_view()),
    path("dev-environments/packages/level", packages_views.PackagesLevelView.as_view()),
    path("dev-environments/packages/level/<str:installation_id>", packages_views.PackagesInstallationView.as_view()),
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
    path(f"{ONE}/memory", memory_views.MemoryView.as_view()),
    path(f"{ONE}/kernels/<str:kernel_id>/end", memory_views.KernelEndView.as_view()),
    path(f"{ONE}/ask-owner", memory_views.AskOwnerView.as_view()),
]
