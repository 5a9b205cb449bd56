"""Celery tasks. Losing a message loses nothing: the next one does the same."""

from celery import shared_task

from apps.templates import schedule_pass


@shared_task(name="templates.schedules", ignore_result=True)
def run_due_schedules() -> None:
    """Create the tasks of schedules whose moments have come."""
    schedule_pass.run_due_schedules()
