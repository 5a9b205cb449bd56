"""Celery tasks. Losing a message loses nothing: the next one does the same."""

from celery import shared_task

from apps.agents import enforcement
from apps.agents.services import proposals


@shared_task(name="agents.purses", ignore_result=True)
def check_purses() -> None:
    """Pause the tasks of spent purses and close proposals that nobody decided."""
    enforcement.pause_spent_purses()
    proposals.expire_proposals()
