from django.urls import path

from apps.clusters.api import views

urlpatterns = [
    path("dev-environments/summary", views.EnvironmentSummaryView.as_view()),
    path("availability-zones", views.ZonesView.as_view()),
    path("clusters", views.ClustersView.as_view()),
    path("clusters/<str:cluster_id>", views.ClusterView.as_view()),
    path("clusters/<str:cluster_id>/check", views.ClusterCheckView.as_view()),
]
