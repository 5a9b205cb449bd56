"""Notifications: incidents, who gets them by which channel, and what became of each message.

    Incident 1──* Item       an entry in the inbox of one user
       │     1──* Delivery   one message by one channel
    Rule     *──* Channel    mail, chat or a webhook, of a user, a project or the platform

An event writes an `Incident` in its own transaction, and nothing more. Who gets it is decided later by the rules at
that time: `due_at` says that it has not been distributed since it changed.
"""

from functools import partial

from django.conf import settings
from django.db import models
from django.db.models import Q

from apps.common.ids import new_id


class IncidentLevel(models.TextChoices):
    INFO = "info"
    WARN = "warn"
    FAIL = "fail"


class Owned(models.Model):
    """Base of what belongs to a user or a project, or (neither) to the platform."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    name = models.CharField(max_length=100)
    created_at = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.name


class ChannelKind(models.TextChoices):
    """Kind of a channel. `apprise`: any address that Apprise supports."""

    APPRISE = "apprise"
    WEBHOOK = "webhook"


class Channel(Owned):
    """A way to notify people. `address` is encrypted, because it mostly contains a password or a token; `shown` is what
    may be shown of it. `secret`: what webhooks are signed with, encrypted. `rests_until`: after failures nothing is
    sent before."""

    GOES_WITH_PROJECT = True

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "channel"))
    kind = models.CharField(max_length=20, choices=ChannelKind)
    address = models.TextField()
    shown = models.CharField(max_length=300)
    secret = models.TextField(default="", blank=True)
    language = models.CharField(max_length=10)
    enabled = models.BooleanField(default=True)
    failures = models.PositiveIntegerField(default=0)  # in a row
    rests_until = models.DateTimeField(null=True, blank=True)


class Rule(Owned):
    """Which incidents go to which channels. `kinds`: of incidents; empty: all. `restarts`, `waits_seconds`: minimum
    number of restarts and length of a wait. `quiet_from`, `quiet_to` (minutes of the day in `timezone`): in between
    only incidents of at least the level `breaks_through` are sent, the rest afterwards."""

    GOES_WITH_PROJECT = True

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "rule"))
    channels = models.ManyToManyField(Channel, related_name="rules")
    kinds = models.JSONField(default=list, blank=True)
    level = models.CharField(max_length=10, choices=IncidentLevel, default=IncidentLevel.INFO)
    restarts = models.PositiveIntegerField(null=True, blank=True)
    waits_seconds = models.PositiveIntegerField(null=True, blank=True)
    quiet_from = models.PositiveIntegerField(null=True, blank=True)
    quiet_to = models.PositiveIntegerField(null=True, blank=True)
    timezone = models.CharField(max_length=60, default="UTC")
    breaks_through = models.CharField(max_length=10, choices=IncidentLevel, default=IncidentLevel.FAIL)
    enabled = models.BooleanField(default=True)


class Incident(models.Model):
    """Something that happened. `key`: the task, node etc.; while the incident is open, the same kind and key continue
    it. `times`: how often it was reported. `code` has a text in `fermi.messages`. `owner`: its owner among the
    project's users."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "incident"))
    kind = models.CharField(max_length=30)
    key = models.CharField(max_length=150)
    level = models.CharField(max_length=10, choices=IncidentLevel)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, null=True, related_name="+")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, related_name="+")
    code = models.CharField(max_length=60)
    params = models.JSONField(default=dict)
    link = models.CharField(max_length=200, default="")  # a path of the console
    times = models.PositiveIntegerField(default=1)
    opened_at = models.DateTimeField(db_index=True)
    updated_at = models.DateTimeField()
    over_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True, db_index=True)

    GOES_WITH_PROJECT = True

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["kind", "key"], condition=Q(over_at=None), name="one_open_incident_per_key")
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class Item(models.Model):
    """An incident in a user's inbox."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="items")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notices")
    at = models.DateTimeField()
    read_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["incident", "user"], name="one_item_per_person")]
        indexes = [models.Index(fields=["user", "read_at", "-at"])]


class Outcome(models.TextChoices):
    """Outcome of a delivery. `dropped`: its channel was deleted or disabled, or the incident was resolved before it was
    sent."""

    WAITING = "waiting"
    SENT = "sent"
    FAILED = "failed"
    DROPPED = "dropped"


class Delivery(models.Model):
    """A message by a channel. `what`: the incident was `opened`, or is `over`; a `test` has no incident. `due_at` is
    schedule and claim in one. `tries`: `{"at", "seconds", "error", "answer"}` of each."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "delivery", 16))
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, null=True, related_name="deliveries")
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="deliveries")
    what = models.CharField(max_length=10)
    outcome = models.CharField(max_length=10, choices=Outcome, default=Outcome.WAITING)
    created_at = models.DateTimeField()
    due_at = models.DateTimeField(null=True, db_index=True)
    ended_at = models.DateTimeField(null=True)
    tries = models.JSONField(default=list)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["incident", "channel", "what"], condition=Q(incident__isnull=False), name="one_message_per_way"
            )
        ]
        indexes = [models.Index(fields=["channel", "-created_at"]), models.Index(fields=["outcome", "ended_at"])]
