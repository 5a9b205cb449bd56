from django.urls import path

from apps.tensorboard.api import views

urlpatterns = [
    path("tensorboards", views.TensorBoardsView.as_view()),
    path("tensorboards/<str:tensorboard_id>", views.TensorBoardView.as_view()),
]
