"""Celery tasks. A lost message loses nothing: the next one does the same."""

from celery import shared_task

from apps.telemetry import downsampling

ROUNDS = 3
"""How often a message repeats its work while there is more: enough for 18,000 subjects, and little at a time."""


@shared_task(name="telemetry.fold")
def fold() -> None:
    for _ in range(ROUNDS):
        if not downsampling.fold():
            return


@shared_task(name="telemetry.forget")
def forget() -> None:
    downsampling.forget()
