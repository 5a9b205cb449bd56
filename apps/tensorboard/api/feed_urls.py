"""URLs below `/tensorboard-feed/`, for the programs of TensorBoards."""

from django.urls import path

from apps.tensorboard.api import feed

urlpatterns = [
    path("serving", feed.ServingView.as_view()),
    path("tasks", feed.TasksView.as_view()),
    path("tasks/<str:task_id>/files", feed.FilesView.as_view()),
    path("tasks/<str:task_id>/content", feed.ContentView.as_view()),
    path("tasks/<str:task_id>/points", feed.PointsView.as_view()),
]
