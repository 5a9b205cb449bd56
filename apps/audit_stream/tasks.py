"""Celery tasks. A lost message loses nothing: the next one sends what is new."""

from celery import shared_task

from apps.audit_stream import delivery


@shared_task(name="audit_stream.send", ignore_result=True)
def send_audit_events() -> None:
    delivery.send_new_events()
