from django.urls import path

from apps.catalog.api import views

urlpatterns = [
    path("datasets", views.DatasetsView.as_view()),
    path("datasets/<str:dataset_id>", views.DatasetView.as_view()),
    path("datasets/<str:dataset_id>/versions", views.VersionsView.as_view()),
    path("models", views.ModelsView.as_view()),
]
