"""Tasks that are repeated: saved requests with parameters, and schedules that create tasks by themselves.

    SavedTemplate 1──* Schedule 1──* ScheduleRun   one row for each moment at which a task was due

A row of `ScheduleRun` is written before its task is created, and its moment is unique: whatever ends a pass, the next
one finds the row and finds, by the task's idempotency key, whether its task exists.
"""

from functools import partial

from django.conf import settings
from django.db import models
from django.db.models import Q

from apps.common.ids import new_id


class SavedTemplate(models.Model):
    """A request for a task with placeholders, and the parameters that fill them (`apps.templates.placeholders`).
    `project` None: offered to every project. `version` counts its changes; `last_task`: the newest task that was
    created from it, by a person or a schedule."""

    GOES_WITH_PROJECT = True

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "saved"))
    project = models.ForeignKey(
        "accounts.Project", on_delete=models.CASCADE, null=True, blank=True, related_name="saved_templates"
    )
    name = models.CharField(max_length=100)
    description = models.TextField(default="", blank=True)
    request = models.JSONField()
    parameters = models.JSONField(default=list, blank=True)
    version = models.PositiveIntegerField(default=1)
    last_used_at = models.DateTimeField(null=True, blank=True)
    last_task = models.CharField(max_length=40, default="", blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="saved_template_name_in_project"),
            models.UniqueConstraint(fields=["name"], condition=Q(project=None), name="saved_template_name_of_platform"),
        ]

    def __str__(self) -> str:
        return self.name


class MissedPolicy(models.TextChoices):
    """What becomes of moments that passed while the platform was down or the schedule could not run."""

    SKIP = "skip"
    LAST = "last"
    ALL = "all"


class OverlapPolicy(models.TextChoices):
    """What happens at a moment while a task of an earlier one goes on."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue"
    STOP_OLDER = "stop-older"


class Schedule(models.Model):
    """Creates tasks at the moments of a cron expression, with the rights of `owner`: of the template with `values`, or
    of `request`. `next_at`: the next moment that has no row in `ScheduleRun`, None while it is disabled; `due_at`,
    `claimed_at`: when a pass handles it next, and the pass that does (`apps.common.pass_claims`). `stopped`: the code
    of why the platform disabled it, with its parameters; empty: it did not."""

    GOES_WITH_PROJECT = True

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "schedule"))
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="schedules")
    name = models.CharField(max_length=100)
    template = models.ForeignKey(
        SavedTemplate, on_delete=models.RESTRICT, null=True, blank=True, related_name="schedules"
    )
    values = models.JSONField(default=dict, blank=True)
    request = models.JSONField(null=True, blank=True)
    cron = models.CharField(max_length=100)
    zone = models.CharField(max_length=60)
    missed = models.CharField(max_length=10, choices=MissedPolicy, default=MissedPolicy.LAST)
    overlap = models.CharField(max_length=10, choices=OverlapPolicy, default=OverlapPolicy.SKIP)
    enabled = models.BooleanField(default=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="schedules")
    next_at = models.DateTimeField(null=True, blank=True)
    due_at = models.DateTimeField(null=True, blank=True, db_index=True)
    claimed_at = models.DateTimeField(null=True, blank=True)
    last_at = models.DateTimeField(null=True, blank=True)
    last_task = models.CharField(max_length=40, default="", blank=True)
    stopped = models.CharField(max_length=40, default="", blank=True)
    stopped_params = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="schedule_name_in_project")]

    def __str__(self) -> str:
        return self.name


class RunOutcome(models.TextChoices):
    """What became of a moment. `pending`: its task is yet to be created."""

    PENDING = "pending"
    CREATED = "created"
    SKIPPED = "skipped"
    FAILED = "failed"


class ScheduleRun(models.Model):
    """A moment at which a task of a schedule was due. `owner`: whose task it is, or would be. `code`, `params`: why it
    was skipped or failed, or what it waits for. The newest `schedule_pass.MAX_HISTORY` of a schedule are kept."""

    schedule = models.ForeignKey(Schedule, on_delete=models.CASCADE, related_name="runs", db_index=False)
    moment = models.DateTimeField()
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False)
    outcome = models.CharField(max_length=10, choices=RunOutcome)
    task = models.CharField(max_length=40, default="", blank=True)
    code = models.CharField(max_length=40, default="", blank=True)
    params = models.JSONField(default=dict, blank=True)
    decided_at = models.DateTimeField()

    class Meta:
        ordering = ["-moment"]
        constraints = [models.UniqueConstraint(fields=["schedule", "moment"], name="one_run_per_moment")]

    def __str__(self) -> str:
        return f"{self.schedule_id} {self.moment}"
