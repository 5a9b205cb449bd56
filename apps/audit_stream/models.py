"""How far each receiver of the audit trail has come."""

from django.db import models


class AuditReceiver(models.Model):
    """A receiver by its kind (`syslog`, `webhook`): an address that changes goes on where the one before had come.

    `position`: id of the last event that it confirmed. `settled`: no event with this id or a smaller one will appear
    any more. `mark`: the id that is settled once the transactions of `mark_writers` are over (`completeness`).
    `due_at`: schedule and claim in one (`apps.common.claims`). `failing_since`, `failures`, `problem`: None, 0 and
    empty after a success.
    """

    name = models.CharField(primary_key=True, max_length=20)
    position = models.BigIntegerField()
    settled = models.BigIntegerField(default=0)
    mark = models.BigIntegerField(null=True)
    mark_writers = models.JSONField(default=list)
    due_at = models.DateTimeField()
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)
    failing_since = models.DateTimeField(null=True)
    failures = models.IntegerField(default=0)
    problem = models.CharField(max_length=300, default="")
