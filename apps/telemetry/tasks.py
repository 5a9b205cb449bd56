"""Celery tasks. A lost message loses nothing: the next one does the same."""

from celery import shared_task

from apps.telemetry import rollups

MAX_ROUNDS = 3
"""How often a message repeats its work while there is more: enough for 18,000 subjects, and little at a time."""


@shared_task(name="telemetry.fold")
def fold_blocks() -> None:
    for _ in range(MAX_ROUNDS):
        if not rollups.fold_blocks():
            return


@shared_task(name="telemetry.forget")
def delete_expired() -> None:
    rollups.delete_expired()
