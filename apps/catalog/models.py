"""Datasets with their versions, and models (a recipe and its defaults)."""

from functools import partial

from django.db import models

from apps.common.ids import new_id


class Dataset(models.Model):
    """A named dataset. `project` None: every project may use it."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "dataset"))
    name = models.CharField(max_length=100)
    description = models.TextField(default="", blank=True)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class VersionStatus(models.TextChoices):
    PREPARING = "preparing"
    READY = "ready"
    FAILED = "failed"


class DatasetVersion(models.Model):
    """Token files of one state of a dataset, never changed once they are ready.

    `source` is what the user named (a text folder, or a folder with a pair of `.bin` files); `train_path` and
    `valid_path` are the uint16 files that training maps into memory; `sha256` covers both, in this order.
    """

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "version"))
    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="versions")
    name = models.CharField(max_length=60)
    status = models.CharField(max_length=20, choices=VersionStatus, default=VersionStatus.PREPARING)
    progress = models.FloatField(default=0.0)  # 0..1
    source = models.CharField(max_length=500, default="", blank=True)
    train_path = models.CharField(max_length=500, default="", blank=True)
    valid_path = models.CharField(max_length=500, default="", blank=True)
    train_tokens = models.BigIntegerField(default=0)
    valid_tokens = models.BigIntegerField(default=0)
    size_bytes = models.BigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, default="", blank=True)
    largest_token = models.IntegerField(null=True, blank=True)  # null: prepared before it was looked for
    error = models.JSONField(null=True, blank=True)  # {"code": …, params…} when failed
    due_at = models.DateTimeField(null=True, blank=True, db_index=True)  # when preparation is to be looked at (claim)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["dataset", "name"], name="version_name_per_dataset")]

    def __str__(self) -> str:
        return f"{self.dataset} {self.name}"


class Model(models.Model):
    """A model to train: `recipe` names a reference trainer (`gpt`); `defaults` are its hyperparameters, by the API's
    names."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "model"))
    name = models.CharField(max_length=100)
    description = models.TextField(default="", blank=True)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, null=True, blank=True)
    recipe = models.CharField(max_length=40, default="gpt")
    parameters = models.BigIntegerField(null=True, blank=True)  # how many weights, for recommending a framework
    defaults = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name
