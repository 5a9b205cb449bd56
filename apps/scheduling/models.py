"""Sharing of machines between projects: limits, reservations, prices, and the usage ledger. (The queue is in
`apps.training.queue`.)

    Project 1──1 Limits        its weight, guarantee and limits; no row: none, and a weight of one
            1──* UserLimits    of single members, in place of what `Limits` has for each
            1──1 Share         GPU-seconds used, with a half-life
            1──* Usage         the ledger: which task held which environment when, and how the time was used
    Reservation *──* environments that only one project gets for a while, or none during maintenance
    Price       of a GPU-hour, by type and zone
"""

from functools import partial

from django.conf import settings
from django.db import models

from apps.common.ids import new_id


class AtBudget(models.TextChoices):
    """What happens to new tasks of a project that has spent its budget of the month."""

    WARN = "warn"
    REFUSE = "refuse"
    PREEMPTIBLE = "preemptible"


class Limits(models.Model):
    """Limits of a project, as the scheduler takes them; empty = no limit. Months are in UTC. `priorities`: names of
    classes; empty = low, normal and high. The `user_…` columns apply to each member without `UserLimits`.
    `max_environments`: managed environments, stopped ones too; `max_environment_gpus`: GPUs of the running ones."""

    GOES_WITH_PROJECT = True

    project = models.OneToOneField(
        "accounts.Project", on_delete=models.CASCADE, primary_key=True, related_name="limits"
    )
    weight = models.PositiveIntegerField(default=1)
    guaranteed_gpus = models.PositiveIntegerField(null=True, blank=True)
    most_gpus = models.PositiveIntegerField(null=True, blank=True)
    most_tasks = models.PositiveIntegerField(null=True, blank=True)
    gpu_hours = models.FloatField(null=True, blank=True)
    gpu_types = models.JSONField(default=list, blank=True)
    zones = models.JSONField(default=list, blank=True)  # ids
    priorities = models.JSONField(default=list, blank=True)
    longest_run_seconds = models.PositiveIntegerField(null=True, blank=True)
    user_most_gpus = models.PositiveIntegerField(null=True, blank=True)
    user_most_tasks = models.PositiveIntegerField(null=True, blank=True)
    user_gpu_hours = models.FloatField(null=True, blank=True)
    max_environments = models.PositiveIntegerField(null=True, blank=True)
    max_environment_gpus = models.PositiveIntegerField(null=True, blank=True)
    user_max_environments = models.PositiveIntegerField(null=True, blank=True)
    user_max_environment_gpus = models.PositiveIntegerField(null=True, blank=True)
    budget = models.DecimalField(max_digits=14, decimal_places=2, null=True, blank=True)  # a month
    max_file_bytes = models.BigIntegerField(null=True, blank=True)  # of files and outputs together
    max_cache_bytes = models.BigIntegerField(null=True, blank=True)  # of libraries; null: settings.CACHE_MAX_GB
    at_budget = models.CharField(max_length=20, choices=AtBudget, default=AtBudget.WARN)
    budget_warned = models.CharField(max_length=7, default="", blank=True)  # the month, as 2026-11, that was warned of
    updated_at = models.DateTimeField()
    updated_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        verbose_name_plural = "limits"

    def __str__(self) -> str:
        return str(self.project_id)


class UserLimits(models.Model):
    """Limits of one member of a project."""

    GOES_WITH_PROJECT = True

    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="user_limits")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    most_gpus = models.PositiveIntegerField(null=True, blank=True)
    most_tasks = models.PositiveIntegerField(null=True, blank=True)
    gpu_hours = models.FloatField(null=True, blank=True)
    max_environments = models.PositiveIntegerField(null=True, blank=True)
    max_environment_gpus = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "user"], name="one_limit_per_user")]
        verbose_name_plural = "user limits"


class Reservation(models.Model):
    """Environments reserved for a project; `project` empty: for maintenance. Before it begins they are drained: nothing
    starts there that would not have ended by then."""

    GOES_WITH_PROJECT = True

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "reservation"))
    project = models.ForeignKey(
        "accounts.Project", on_delete=models.CASCADE, null=True, blank=True, related_name="reservations"
    )
    environments = models.ManyToManyField("clusters.DevEnvironment", related_name="reservations")
    begins_at = models.DateTimeField()
    ends_at = models.DateTimeField(db_index=True)
    note = models.CharField(max_length=200, default="", blank=True)
    created_at = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")

    def __str__(self) -> str:
        return self.note or str(self.pk)


class Price(models.Model):
    """Price of one GPU for an hour, in `settings.CURRENCY`, from `since` until a later row of the same type and zone.
    `gpu_type` empty: any type; `zone` empty: any zone. `per_gpu_hour` empty: no price of its own any more. The most
    specific price applies: type and zone, type, zone, neither."""

    gpu_type = models.CharField(max_length=40, default="", blank=True)
    zone = models.ForeignKey("clusters.AvailabilityZone", on_delete=models.CASCADE, null=True, blank=True)
    per_gpu_hour = models.DecimalField(max_digits=12, decimal_places=4, null=True)
    since = models.DateTimeField()

    class Meta:
        ordering = ["gpu_type", "zone", "since"]


class Share(models.Model):
    """GPU-seconds that the project's tasks have held, as they count at `as_of`: with a half-life of seven days
    (`fermi.scheduler.order`)."""

    GOES_WITH_PROJECT = True

    project = models.OneToOneField("accounts.Project", on_delete=models.CASCADE, primary_key=True, related_name="share")
    used = models.FloatField(default=0.0)
    as_of = models.DateTimeField()


class Usage(models.Model):
    """An environment that a task held from `since` to `until`, never across the end of a month (UTC). How the time was
    used, in seconds that add up to it: `starting` until the first step, `training` steps that count, `saving`, `lost`
    to failures, `redone` steps, `idle` without an attempt, `hung` without progress. `waited`: the seconds before
    `since` in which the task held nothing. Names are kept when what they name is deleted."""

    task = models.CharField(max_length=40, db_index=True)  # id; the task may be deleted
    task_name = models.CharField(max_length=100)
    kind = models.CharField(max_length=20)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="usage")
    owner = models.CharField(max_length=150)
    environment = models.ForeignKey(
        "clusters.DevEnvironment", on_delete=models.SET_NULL, null=True, related_name="usage"
    )
    environment_name = models.CharField(max_length=100)
    zone = models.CharField(max_length=100)
    gpu_type = models.CharField(max_length=40, default="", blank=True)
    gpus = models.PositiveIntegerField()
    since = models.DateTimeField(db_index=True)
    until = models.DateTimeField()
    starting = models.FloatField(default=0.0)
    training = models.FloatField(default=0.0)
    saving = models.FloatField(default=0.0)
    lost = models.FloatField(default=0.0)
    redone = models.FloatField(default=0.0)
    idle = models.FloatField(default=0.0)
    hung = models.FloatField(default=0.0)
    waited = models.FloatField(default=0.0)
    per_gpu_hour = models.DecimalField(max_digits=12, decimal_places=4, null=True)  # the price when it began

    class Meta:
        indexes = [
            models.Index(fields=["project", "since"]),
            models.Index(fields=["environment", "since"]),
            models.Index(fields=["since"]),
        ]
        constraints = [
            models.UniqueConstraint(fields=["task", "environment", "since"], name="one_usage_per_holding"),
        ]
        verbose_name_plural = "usage"
