"""Celery tasks. A lost message loses nothing: the next one deletes the same."""

from celery import shared_task

from apps.identity.exchange import retention


@shared_task(name="exchange.forget", ignore_result=True)
def delete_expired() -> None:
    retention.delete_expired()
