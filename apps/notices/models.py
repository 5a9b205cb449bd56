"""Word of what happens: to whom, by which way, and what became of each message.

Incident 1──* Item       the bell of one person
   │     1──* Delivery   one message by one channel
Rule     *──* Channel    mail, chat or a webhook, of a person, a project or the platform

What happens writes an `Incident` in its own transaction, and nothing more. Who is to hear of it follows later, from the
rules that there are then: `due_at` says that it has not been looked at since it changed.
"""

from functools import partial

from django.conf import settings
from django.db import models
from django.db.models import Q

from apps.common.ids import new_id


class Level(models.TextChoices):
    INFO = "info"
    WARN = "warn"
    FAIL = "fail"


class Owned(models.Model):
    """By a person or a project, or (neither) by the platform."""

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


class Kind(models.TextChoices):
    """Of a channel. `apprise`: whatever address Apprise understands."""

    APPRISE = "apprise"
    WEBHOOK = "webhook"


class Channel(Owned):
    """`address` is sealed: it mostly has a password or a token in it; `shown` is what of it may be seen. `secret`: what
    webhooks are signed with, sealed. `rests_until`: after failures nothing is tried before."""

    GOES_WITH_PROJECT = True

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "channel"))
    kind = models.CharField(max_length=20, choices=Kind)
    address = models.TextField()
    shown = models.CharField(max_length=300)
    secret = models.TextField(default="", blank=True)
    language = models.CharField(max_length=10)
    enabled = models.BooleanField(default=True)
    failures = models.PositiveIntegerField(default=0)  # in a row
    rests_until = models.DateTimeField(null=True, blank=True)


class Rule(Owned):
    """`kinds`: of incidents; empty: all. `restarts`, `waits_seconds`: from how many, how long on. `quiet_from`,
    `quiet_to` (minutes of the day in `timezone`): meanwhile only `breaks_through` and what is worse is sent, the rest
    afterwards."""

    GOES_WITH_PROJECT = True

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "rule"))
    channels = models.ManyToManyField(Channel, related_name="rules")
    kinds = models.JSONField(default=list, blank=True)
    level = models.CharField(max_length=10, choices=Level, default=Level.INFO)
    restarts = models.PositiveIntegerField(null=True, blank=True)
    waits_seconds = models.PositiveIntegerField(null=True, blank=True)
    quiet_from = models.PositiveIntegerField(null=True, blank=True)
    quiet_to = models.PositiveIntegerField(null=True, blank=True)
    timezone = models.CharField(max_length=60, default="UTC")
    breaks_through = models.CharField(max_length=10, choices=Level, default=Level.FAIL)
    enabled = models.BooleanField(default=True)


class Incident(models.Model):
    """`key`: what makes it the same one, while it is open: a task, a node. `times`: how often it was told of. `code`
    has a text in `fermi.messages`. `owner`: whose it is, of those in the project."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "incident"))
    kind = models.CharField(max_length=30)
    key = models.CharField(max_length=150)
    level = models.CharField(max_length=10, choices=Level)
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
    """An incident in the bell of somebody whom it concerns."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="items")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notices")
    at = models.DateTimeField()
    read_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["incident", "user"], name="one_item_per_person")]
        indexes = [models.Index(fields=["user", "read_at", "-at"])]


class Outcome(models.TextChoices):
    """Of a delivery. `dropped`: its channel was taken away or turned off, or it was over before anybody was told."""

    WAITING = "waiting"
    SENT = "sent"
    FAILED = "failed"
    DROPPED = "dropped"


class Delivery(models.Model):
    """`what`: the incident was `opened`, or is `over`; a `test` has no incident. `due_at` is schedule and claim in one.
    `tries`: `{"at", "seconds", "error", "answer"}` of each."""

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
