"""What people and the ledger say of tasks, beside what the tasks themselves store: the table of runs is built on it.

Task 1──1 Run     note, archive, what it cost; no row: none of these yet
     1──* RunTag  tags
RunView           a query with columns and order, which a person or a project has saved
Position          how far the walks over all tasks have come that fill `Run`
"""

from functools import partial

from django.conf import settings
from django.db import models

from apps.common.ids import new_id
from fermi.planning.tags import MAX_TAG_LENGTH

MAX_NOTE_LENGTH = 20_000
MAX_VIEW_NAME_LENGTH, MAX_QUERY_LENGTH = 60, 2000
MAX_COLUMN_LENGTH = 250


class Run(models.Model):
    """What is said of a task as a run. `note`: Markdown. `archived_at`: since when lists leave it out. `gpu_hours`,
    `cost` and `goodput` are those of its usage (`apps.training.usage.report`), as they were at `counted_at`; None: not
    counted yet, and of the cost also: without a price."""

    task = models.OneToOneField("training.Task", on_delete=models.CASCADE, primary_key=True, related_name="run")
    note = models.TextField(blank=True, max_length=MAX_NOTE_LENGTH)
    archived_at = models.DateTimeField(null=True, blank=True)
    gpu_hours = models.FloatField(null=True, blank=True)
    cost = models.FloatField(null=True, blank=True)
    goodput = models.FloatField(null=True, blank=True)
    counted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["gpu_hours"], name="runs_run_gpu_hours"),
            models.Index(fields=["cost"], name="runs_run_cost"),
            models.Index(fields=["goodput"], name="runs_run_goodput"),
            models.Index(fields=["task"], name="runs_run_archived_task", condition=models.Q(archived_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return str(self.task_id)


class RunTag(models.Model):
    """A tag of a task."""

    task = models.ForeignKey("training.Task", on_delete=models.CASCADE, related_name="tags", db_index=False)
    name = models.CharField(max_length=MAX_TAG_LENGTH)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["task", "name"], name="one_tag_per_name")]
        indexes = [models.Index(fields=["name", "-id"], name="runs_tag_name")]

    def __str__(self) -> str:
        return self.name


class RunView(models.Model):
    """A view of the table of runs, of one person (`user`) or of a project; the other is None. `pinned`: ids of tasks;
    `baseline`: the task that others are compared with."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "view"))
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, related_name="+", db_index=False
    )
    project = models.ForeignKey(
        "accounts.Project", on_delete=models.CASCADE, null=True, related_name="+", db_index=False
    )
    name = models.CharField(max_length=MAX_VIEW_NAME_LENGTH)
    query = models.CharField(max_length=MAX_QUERY_LENGTH, blank=True)
    columns = models.JSONField(default=list)
    sort = models.CharField(max_length=MAX_COLUMN_LENGTH + 1, blank=True)
    group_by = models.JSONField(default=list)
    pinned = models.JSONField(default=list)
    baseline = models.ForeignKey("training.Task", on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "name"], name="one_run_view_per_person_and_name"),
            models.UniqueConstraint(fields=["project", "name"], name="one_run_view_per_project_and_name"),
            models.CheckConstraint(
                condition=models.Q(user=None, project__isnull=False) | models.Q(user__isnull=False, project=None),
                name="run_view_of_a_person_or_a_project",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Position(models.Model):
    """How far a walk over all tasks has come (`apps.runs.walks`): the moment of the last task, and its id."""

    name = models.CharField(primary_key=True, max_length=20)
    moment = models.DateTimeField()
    task = models.CharField(max_length=40, blank=True)

    def __str__(self) -> str:
        return self.name
