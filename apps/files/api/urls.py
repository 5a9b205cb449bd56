from django.urls import path

from apps.files.api import views

PROJECT = "projects/<str:project_id>"
UPLOAD = f"{PROJECT}/file-uploads/<str:upload_id>"

urlpatterns = [
    path(f"{PROJECT}/files", views.FilesView.as_view()),
    path(f"{PROJECT}/files/use", views.FileUseView.as_view()),
    path(f"{PROJECT}/files/content", views.FileContentView.as_view()),
    path(f"{PROJECT}/files/archive", views.FileArchiveView.as_view()),
    path(f"{PROJECT}/files/folders", views.FoldersView.as_view()),
    path(f"{PROJECT}/files/move", views.FileMoveView.as_view()),
    path(f"{PROJECT}/cache", views.LibraryCacheView.as_view()),
    path(f"{PROJECT}/cache/clean", views.LibraryCacheCleanView.as_view()),
    path(f"{PROJECT}/file-uploads", views.UploadsView.as_view()),
    path(UPLOAD, views.UploadView.as_view()),
    path(f"{UPLOAD}/content", views.UploadContentView.as_view()),
    path(f"{UPLOAD}/finish", views.UploadFinishView.as_view()),
]
