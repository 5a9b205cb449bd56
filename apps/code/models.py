"""Code of projects: snapshots, the contents that a project has (blobs), and fetches.

Contents are in `store`, each one once for all projects. A row says that a project has a content; knowing its hash alone
gives no access.
"""

from functools import partial

from django.conf import settings
from django.db import models

from apps.common.clock import now
from apps.common.ids import new_id


class Snapshot(models.Model):
    """Code at one moment. `digest`, the hash of its manifest, is its public id. `finished_at` None: blobs are still
    missing. `patch`: how an upload differed from its commit. `origin`: {"kind": "upload|git|environment", "url",
    "revision", "commit", "branch", "dirty", …}."""

    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="snapshots")
    digest = models.CharField(max_length=64, db_index=True)
    files = models.PositiveIntegerField()
    size_bytes = models.BigIntegerField()
    origin = models.JSONField(default=dict, blank=True)
    patch = models.TextField(default="", blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True, db_index=True)
    used_at = models.DateTimeField(default=now, db_index=True)  # last sent or named; see `forgetting`

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "digest"], name="one_snapshot_per_project")]

    def __str__(self) -> str:
        return self.digest[:12]


class Blob(models.Model):
    """A content that a member of the project has uploaded, or that was fetched for the project."""

    GOES_WITH_PROJECT = True

    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="+")
    sha256 = models.CharField(max_length=64)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "sha256"], name="one_blob_per_project")]

    def __str__(self) -> str:
        return self.sha256[:12]


class FetchStatus(models.TextChoices):
    FETCHING = "fetching"
    READY = "ready"
    FAILED = "failed"


class Fetch(models.Model):
    """Code that the platform fetches. `source`: {"git": {"url", "revision", "secret"}} or {"environment": id, "name",
    "path"}. `due_at` is schedule and claim in one; None: it has ended. `error`: {"code": …, params…}."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "fetch"))
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="+")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    source = models.JSONField()
    status = models.CharField(max_length=20, choices=FetchStatus, default=FetchStatus.FETCHING)
    snapshot = models.ForeignKey(Snapshot, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    error = models.JSONField(null=True, blank=True)
    tries = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField()
    deadline_at = models.DateTimeField()
    due_at = models.DateTimeField(null=True, blank=True, db_index=True)

    def __str__(self) -> str:
        return self.id
