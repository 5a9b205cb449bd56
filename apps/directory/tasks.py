"""Celery tasks. Losing a message loses nothing: the next one does the same."""

from celery import shared_task

from apps.directory.application import apply_rules


@shared_task(name="directory.apply", ignore_result=True)
def apply_all_rules() -> None:
    """Apply the rules to everybody: a provider may have gone with the platform's environment variables."""
    apply_rules()
