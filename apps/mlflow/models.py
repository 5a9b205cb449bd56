"""What MLflow's clients have logged: the rows behind its REST API.

Project 1──* Experiment        a name under which scripts log; the project itself is one, without a row
        1──* RegisteredModel 1──* ModelVersion
Task    1──* TrackedRun        its own run, with the task's id, and runs that its script started beside or below that
TrackedRun 1──* RunEntry       parameters and tags
           1──* RunMetric      the newest value of each name
           1──* MetricValue    all values, as they were logged
Task    1──* LoggedModel       models that its script logged (MLflow 3)

A task whose script logged nothing here has no row: it is shown as a run with what the platform knows of it.
"""

from functools import partial

from django.db import models

from apps.common.ids import new_id

MAX_KEY_LENGTH, MAX_NAME_LENGTH, MAX_VALUE_LENGTH = 250, 256, 8000
"""Characters; MLflow's own limits (mlflow/utils/validation.py)."""


class Experiment(models.Model):
    """A named experiment of a project."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "exp"))
    project = models.ForeignKey(
        "accounts.Project", on_delete=models.CASCADE, related_name="mlflow_experiments", db_index=False
    )
    name = models.CharField(max_length=MAX_NAME_LENGTH)
    tags = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="one_experiment_per_name")]

    def __str__(self) -> str:
        return self.name


class TrackedRun(models.Model):
    """A run of MLflow. `own_task`: the task whose own run it is; its id is the task's. `experiment`: None stands for
    the project. `attempt`: of its task, that joined or began it last. `inputs` and `outputs`: datasets and models, as
    MLflow's messages. `values_count`: of its rows of `MetricValue`."""

    id = models.CharField(primary_key=True, max_length=64)
    task = models.ForeignKey("training.Task", on_delete=models.CASCADE, related_name="mlflow_runs", db_index=False)
    own_task = models.OneToOneField(
        "training.Task", on_delete=models.CASCADE, related_name="mlflow_run", null=True, blank=True
    )
    experiment = models.ForeignKey(Experiment, on_delete=models.SET_NULL, related_name="runs", null=True, blank=True)
    name = models.CharField(max_length=MAX_VALUE_LENGTH, blank=True)
    user_name = models.CharField(max_length=MAX_NAME_LENGTH, blank=True)
    status = models.CharField(max_length=20, blank=True)
    attempt = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)
    inputs = models.JSONField(default=list, blank=True)
    outputs = models.JSONField(default=list, blank=True)
    values_count = models.PositiveIntegerField(default=0)

    class Meta:
        indexes = [models.Index(fields=["task", "started_at"], name="mlflow_run_task")]

    def __str__(self) -> str:
        return self.id


class EntryKind(models.TextChoices):
    """What an entry of a run is."""

    PARAMETER = "param"
    TAG = "tag"


class RunEntry(models.Model):
    """A parameter or a tag of a run."""

    run = models.ForeignKey(TrackedRun, on_delete=models.CASCADE, related_name="entries", db_index=False)
    kind = models.CharField(max_length=8, choices=EntryKind)
    key = models.CharField(max_length=MAX_KEY_LENGTH)
    value = models.TextField(max_length=MAX_VALUE_LENGTH, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "kind", "key"], name="one_entry_per_key")]


class RunMetric(models.Model):
    """The newest value of a metric: that with the highest step, then time, then value, as MLflow counts it. `value`:
    None is not a number; infinities are the largest finite numbers. `at`: unix milliseconds."""

    run = models.ForeignKey(TrackedRun, on_delete=models.CASCADE, related_name="metrics", db_index=False)
    key = models.CharField(max_length=MAX_KEY_LENGTH)
    value = models.FloatField(null=True)
    step = models.BigIntegerField()
    at = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "key"], name="one_newest_value_per_key")]


class MetricValue(models.Model):
    """A value of a metric as it was logged; columns as in `RunMetric`."""

    run = models.ForeignKey(TrackedRun, on_delete=models.CASCADE, related_name="history", db_index=False)
    key = models.CharField(max_length=MAX_KEY_LENGTH)
    value = models.FloatField(null=True)
    step = models.BigIntegerField()
    at = models.BigIntegerField()

    class Meta:
        indexes = [models.Index(fields=["run", "key", "step"], name="mlflow_value_run")]


class LoggedModel(models.Model):
    """A model that a script logged. `run_id`: of the run that logged it. `metrics`: as MLflow's messages."""

    id = models.CharField(primary_key=True, max_length=64)
    task = models.ForeignKey("training.Task", on_delete=models.CASCADE, related_name="mlflow_models")
    experiment = models.ForeignKey(Experiment, on_delete=models.SET_NULL, null=True, blank=True)
    run_id = models.CharField(max_length=64, blank=True)
    name = models.CharField(max_length=MAX_NAME_LENGTH)
    kind = models.CharField(max_length=MAX_KEY_LENGTH, blank=True)
    status = models.CharField(max_length=32)
    params = models.JSONField(default=dict, blank=True)
    tags = models.JSONField(default=dict, blank=True)
    metrics = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.id


class RegisteredModel(models.Model):
    """A name in a project's registry of models. `aliases`: by name, the version."""

    project = models.ForeignKey(
        "accounts.Project", on_delete=models.CASCADE, related_name="mlflow_models", db_index=False
    )
    name = models.CharField(max_length=MAX_NAME_LENGTH)
    description = models.TextField(max_length=MAX_VALUE_LENGTH, blank=True)
    tags = models.JSONField(default=dict, blank=True)
    aliases = models.JSONField(default=dict, blank=True)
    newest_version = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="one_registered_model_per_name")]

    def __str__(self) -> str:
        return self.name


class ModelVersion(models.Model):
    """A version of a registered model. `source`: where its files are, as the client gave it; `logged_id`: the
    `LoggedModel`."""

    model = models.ForeignKey(RegisteredModel, on_delete=models.CASCADE, related_name="versions", db_index=False)
    version = models.PositiveIntegerField()
    source = models.CharField(max_length=1000, blank=True)
    run_id = models.CharField(max_length=64, blank=True)
    logged_id = models.CharField(max_length=64, blank=True)
    description = models.TextField(max_length=MAX_VALUE_LENGTH, blank=True)
    tags = models.JSONField(default=dict, blank=True)
    stage = models.CharField(max_length=20, default="None")
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["model", "version"], name="one_row_per_version")]
