"""Celery tasks. Losing a message loses nothing: the next one does the same."""

from celery import shared_task

from apps.identity import provider_sessions


@shared_task(name="identity.forget", ignore_result=True)
def delete_expired() -> None:
    """Delete rows of sessions that are over, and logout tokens that are too old to be accepted."""
    provider_sessions.delete_expired_rows()
    provider_sessions.delete_expired_tokens()
