from django.urls import path

from apps.code.api import views

urlpatterns = [
    path("code/limits", views.LimitsView.as_view()),
    path("code/snapshots", views.SnapshotsView.as_view()),
    path("code/snapshots/<str:snapshot_id>", views.SnapshotView.as_view()),
    path("code/snapshots/<str:snapshot_id>/blobs", views.SnapshotBlobsView.as_view()),
    path("code/snapshots/<str:snapshot_id>/finish", views.SnapshotFinishView.as_view()),
    path("code/snapshots/<str:snapshot_id>/tree", views.SnapshotTreeView.as_view()),
    path("code/snapshots/<str:snapshot_id>/file", views.SnapshotFileView.as_view()),
    path("code/snapshots/<str:snapshot_id>/patch", views.SnapshotPatchView.as_view()),
    path("code/snapshots/<str:snapshot_id>/diff", views.SnapshotDiffView.as_view()),
    path("code/snapshots/<str:snapshot_id>/manifest", views.SnapshotManifestView.as_view()),
    path("code/snapshots/<str:snapshot_id>/archive", views.SnapshotArchiveView.as_view()),
    path("code/fetches", views.FetchesView.as_view()),
    path("code/fetches/<str:fetch_id>", views.FetchView.as_view()),
]
