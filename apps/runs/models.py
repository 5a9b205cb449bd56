"""What people and the ledger say of tasks, beside what the tasks themselves store: the table of runs is built on it.

Task 1──1 Run     note, archive, what it cost; no row: none of these yet
     1──* RunTag  tags
"""

from django.db import models

MAX_NOTE_LENGTH, MAX_TAG_LENGTH = 20_000, 64


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
            models.Index(fields=["archived_at"], name="runs_run_archived"),
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
