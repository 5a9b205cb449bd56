"""Celery tasks. Losing a message loses nothing: the next one does the same."""

from celery import shared_task

from apps.sweeps import reconcile


@shared_task(name="sweeps.sweep", ignore_result=True)
def reconcile_due_sweeps() -> None:
    """Run a pass over each sweep that is due."""
    reconcile.reconcile_due_sweeps()
