"""Serializers of requests and answers about files."""

from django.db.models import F
from rest_framework import serializers

from apps.common.openapi import MAX_INT8, KeyField
from apps.common.pages import OrderingField, PageQuery
from apps.files.models import UploadState
from apps.files.paths import MAX_PATH_BYTES


class PathField(KeyField):
    """A path within the project, relative, with `/` between folders."""

    def __init__(self, **options: object) -> None:
        super().__init__(**{"max_length": MAX_PATH_BYTES, "trim_whitespace": False, **options})


class FileQuery(PageQuery):
    path = PathField(default="", allow_blank=True, help_text="a folder; empty = the whole project")
    search = serializers.CharField(
        max_length=100, default="", allow_blank=True, help_text="in the names of all that is below the folder"
    )
    ordering = OrderingField("name", name="name", sizeBytes="size", modifiedAt=F("changed_at").asc())


class FileItem(serializers.Serializer):
    path = serializers.CharField()
    name = serializers.CharField()
    kind = serializers.ChoiceField(["file", "folder"])
    sizeBytes = serializers.IntegerField(allow_null=True, help_text="null of a folder")
    sha256 = serializers.CharField(help_text="empty where it is not known: of folders, and of what tasks write")
    modifiedAt = serializers.DateTimeField()
    by = serializers.CharField(help_text="who put it there; empty: a task")
    busy = serializers.BooleanField(help_text="it is being moved or replaced")


class FileUse(serializers.Serializer):
    usedBytes = serializers.IntegerField(help_text="all of the below")
    fileBytes = serializers.IntegerField()
    arrivingBytes = serializers.IntegerField(help_text="set aside for uploads under way")
    outputBytes = serializers.IntegerField(
        help_text="what tasks have written to FERMI_OUTPUT_DIR and beside their scripts"
    )
    maxFileBytes = serializers.IntegerField(allow_null=True, help_text="null: no limit")
    place = serializers.CharField(help_text="for the project's ranks: FERMI_FILES_DIR, or FERMI_FILES_URL")
    remote = serializers.BooleanField(help_text="it is object storage")


class LibraryCacheUnit(serializers.Serializer):
    path = serializers.CharField(help_text="below the cache")
    sizeBytes = serializers.IntegerField()
    usedAt = serializers.DateTimeField(help_text="as far as the file system records it")


class LibraryCache(serializers.Serializer):
    """What libraries of a project's tasks have downloaded and compiled (HF_HOME, TORCH_HOME, TRITON_CACHE_DIR,
    TORCHINDUCTOR_CACHE_DIR), as it was measured last."""

    sizeBytes = serializers.IntegerField()
    maxBytes = serializers.IntegerField(allow_null=True, help_text="null: no limit")
    excessBytes = serializers.IntegerField(
        help_text="above the limit: used within the hour, by a task that runs, or nothing that may be removed"
    )
    units = serializers.IntegerField(help_text="models, files and kernels that can be removed one by one")
    complete = serializers.BooleanField(help_text="false: there is more than was counted")
    largest = LibraryCacheUnit(many=True)
    error = serializers.CharField(help_text="why it could not be measured; empty: it could")
    measuredAt = serializers.DateTimeField(allow_null=True, help_text="null: not yet")
    cleanedAt = serializers.DateTimeField(allow_null=True, help_text="when something was removed last")
    freedBytes = serializers.IntegerField(help_text="then")
    mayClean = serializers.BooleanField()


class LibraryCacheCleanRequest(serializers.Serializer):
    keepBytes = serializers.IntegerField(
        min_value=0, max_value=MAX_INT8, default=0,
        help_text="that may stay; what is in use stays in any case",
    )  # fmt: skip


class FileKey(serializers.Serializer):
    path = PathField()


class FileDeleteQuery(serializers.Serializer):
    path = PathField()
    recursive = serializers.BooleanField(default=False, help_text="also a folder with something in it")


class ArchiveQuery(serializers.Serializer):
    path = PathField(default="", allow_blank=True)
    format = serializers.ChoiceField(["tar", "zip"], default="zip")


class FolderCreateRequest(serializers.Serializer):
    path = PathField()


class FileMoveRequest(serializers.Serializer):
    path = PathField()
    to = PathField(help_text="the whole new path")


class UploadCreateRequest(serializers.Serializer):
    path = PathField()
    sizeBytes = serializers.IntegerField(source="size", min_value=0, max_value=MAX_INT8 // 4)
    sha256 = serializers.RegexField("^[0-9a-fA-F]{64}$", help_text="of the whole file")
    replace = serializers.BooleanField(default=False, help_text="a file that is there with another content")


class UploadQuery(PageQuery):
    ordering = OrderingField("-createdAt", createdAt="created_at")


class UploadError(serializers.Serializer):
    code = serializers.CharField()
    message = serializers.CharField()
    hint = serializers.CharField()


class UploadItem(serializers.Serializer):
    id = serializers.CharField(help_text="empty: nothing has to be sent, the same content is there")
    path = serializers.CharField()
    sizeBytes = serializers.IntegerField()
    sha256 = serializers.CharField()
    state = serializers.ChoiceField(UploadState.choices)
    offset = serializers.IntegerField(help_text="bytes that are here: where to go on")
    by = serializers.CharField()
    error = UploadError(allow_null=True)
    createdAt = serializers.DateTimeField()
    expiresAt = serializers.DateTimeField(help_text="when it is given up, unless somebody goes on with it")


class PieceQuery(serializers.Serializer):
    offset = serializers.IntegerField(min_value=0, max_value=MAX_INT8 // 4)
