"""Files of projects as the database knows them; their contents are in the store (`store.py`).

Project 1──* File     a file or a folder; of a task: what it wrote, once that was brought to object storage
        1──* Upload   a file that is arriving
        1──* Outputs  what a task writes, counted
        1──1 LibraryCache  what libraries of its tasks downloaded and compiled, measured
"""

from functools import partial

from django.conf import settings
from django.db import models

from apps.common.ids import new_id
from apps.files import paths


class PendingOperation(models.TextChoices):
    """Operation that the store has yet to carry out, by the process that requested it or by the sweep."""

    NOTHING = ""
    PUT = "put"
    MOVE = "move"
    DELETE = "delete"


class File(models.Model):
    """A file or folder. `task`: empty, or the task that wrote it. `source`: where its content is until it has been
    moved. `due_at`: when the sweep handles it (a claim, too)."""

    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="files")
    task = models.CharField(max_length=40, default="", blank=True)
    parent = models.CharField(max_length=600, default="", blank=True)
    name = models.CharField(max_length=255)
    folder = models.BooleanField(default=False)
    size = models.BigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, default="", blank=True)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    changed_at = models.DateTimeField()
    doing = models.CharField(max_length=10, choices=PendingOperation, default=PendingOperation.NOTHING, blank=True)
    source = models.CharField(max_length=600, default="", blank=True)
    upload = models.CharField(max_length=40, default="", blank=True)  # that is being put in its place
    due_at = models.DateTimeField(null=True, blank=True, db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "task", "parent", "name"], name="one_file_per_name"),
        ]

    def __str__(self) -> str:
        return self.path

    @property
    def path(self) -> str:
        return paths.join_path(self.parent, self.name)


class UploadState(models.TextChoices):
    """States of an upload: receiving ─▶ checking ─▶ done | failed."""

    RECEIVING = "receiving"
    CHECKING = "checking"
    DONE = "done"
    FAILED = "failed"


class Upload(models.Model):
    """An upload in progress. Its received size is that of its file in the staging folder. `touched_at`: the last
    request for it; a day later it is deleted."""

    GOES_WITH_PROJECT = True

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "upload"))
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="uploads")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    path = models.CharField(max_length=600)
    size = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    state = models.CharField(max_length=10, choices=UploadState, default=UploadState.RECEIVING)
    error = models.JSONField(null=True, blank=True)  # {"code": …, params…} when failed
    created_at = models.DateTimeField()
    touched_at = models.DateTimeField(db_index=True)
    due_at = models.DateTimeField(null=True, blank=True, db_index=True)  # while checking: schedule and claim

    class Meta:
        indexes = [models.Index(fields=["project", "user", "path"])]

    def __str__(self) -> str:
        return f"{self.path} ({self.id})"


class Outputs(models.Model):
    """What a task has in its FERMI_OUTPUT_DIR. `stored`: all of it was copied to object storage, and has `File` rows.
    `due_at`: when it is to be counted, or copied (a claim, too); None: nothing is left to do."""

    GOES_WITH_PROJECT = True

    task = models.CharField(primary_key=True, max_length=40)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="outputs")
    size = models.BigIntegerField(default=0)
    count = models.PositiveIntegerField(default=0)
    counted_at = models.DateTimeField(null=True, blank=True)
    stored = models.BooleanField(default=False)
    error = models.CharField(max_length=300, default="", blank=True)  # why it could not be stored, at the last try
    due_at = models.DateTimeField(null=True, blank=True, db_index=True)

    def __str__(self) -> str:
        return self.task


class LibraryCache(models.Model):
    """The project's cache of libraries (`fermi.engines.library_cache`), as it was found when it was cleaned last.
    `largest`: its largest units, `{"path", "size", "usedAt"}`; `excess`: bytes above the limit that had to stay;
    `error`: why it could not be measured."""

    GOES_WITH_PROJECT = True

    project = models.OneToOneField(
        "accounts.Project", on_delete=models.CASCADE, primary_key=True, related_name="library_cache"
    )
    size = models.BigIntegerField(default=0)
    count = models.PositiveIntegerField(default=0)  # units
    is_complete = models.BooleanField(default=True)
    largest = models.JSONField(default=list)
    excess = models.BigIntegerField(default=0)
    error = models.CharField(max_length=300, default="", blank=True)
    measured_at = models.DateTimeField()
    cleaned_at = models.DateTimeField(null=True, blank=True)  # when something was removed last
    freed = models.BigIntegerField(default=0)  # bytes, then

    def __str__(self) -> str:
        return str(self.project_id)
