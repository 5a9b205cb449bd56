"""Celery tasks. Losing a message loses nothing: the next one does the same."""

from celery import shared_task

from apps.tensorboard.services import boards


@shared_task(name="tensorboard.sweep", ignore_result=True)
def end_unused_tensorboards() -> None:
    """End TensorBoards that are no longer of use."""
    boards.end_unused()
