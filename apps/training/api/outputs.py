"""Endpoints for the outputs and checkpoints of tasks, as files."""

from rest_framework import serializers

from apps.accounts.models import Project
from apps.common.api import APIView, Data, Query, Request, operation, paginate_rows
from apps.common.errors import ApiError
from apps.files import paths, selectors
from apps.files.api import responses
from apps.files.api.serializers import FileItem, FileQuery, PathField
from apps.files.models import Outputs
from apps.files.services import folders, outputs
from apps.training.logs.outputs import locate_checkpoint
from apps.training.models import Task
from apps.training.services import actions
from fermi.engines.safe_tree import SafeTree


class TaskOutputs(serializers.Serializer):
    sizeBytes = serializers.IntegerField()
    count = serializers.IntegerField(help_text="of files")
    countedAt = serializers.DateTimeField(allow_null=True, help_text="every minute or so, until the task has ended")
    stored = serializers.BooleanField(help_text="they have been brought to object storage, and are read from there")
    error = serializers.CharField(help_text="why they could not be brought there, at the last try; empty: nothing")


class OutputKey(serializers.Serializer):
    path = PathField(max_length=4096)


class OutputArchiveQuery(serializers.Serializer):
    path = PathField(default="", allow_blank=True, max_length=4096)
    format = serializers.ChoiceField(["tar", "zip"], default="zip")


def _find_outputs(request: Request, task_id: str) -> tuple[Task, Project, bool]:
    """Return the task, its project, and whether its outputs are in object storage."""
    task = actions.find_task(request.user, task_id)
    return task, task.project, outputs.is_stored(task.project, task.pk)


class TaskOutputsView(APIView):
    @operation("listTaskOutputs", scope="tasks:read", query=FileQuery, page=FileItem)
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """List a folder of the task's output: of its FERMI_OUTPUT_DIR and of what it wrote beside its script; with
        `search` everything below it."""
        task, project, stored = _find_outputs(request, task_id)
        if not stored:
            return selectors.paginate_tree(outputs.open_tree(task.pk), query["path"].strip("/"), query)
        rows = selectors.list_files(project, paths.normalize_path(query["path"], root=True), query["search"], task.pk)
        return paginate_rows(rows, {**query, "ordering": ["-folder", *query["ordering"]]}, selectors.serialize_file)


class TaskOutputsSummaryView(APIView):
    @operation("getTaskOutputs", scope="tasks:read", data=TaskOutputs)
    def get(self, request: Request, task_id: str) -> Data:
        """Return how many files and bytes the task has written."""
        task = actions.find_task(request.user, task_id)
        row = Outputs.objects.filter(pk=task.pk).first() or Outputs(task=task.pk)
        return {
            "sizeBytes": row.size,
            "count": row.count,
            "countedAt": row.counted_at,
            "stored": row.stored,
            "error": row.error,
        }


class TaskOutputContentView(APIView):
    @operation(
        "downloadTaskOutput",
        scope="outputs:read",
        query=OutputKey,
        media="application/octet-stream",
        headers=["Range", "If-None-Match"],
    )
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """Return a file that the task has written, or one range of it."""
        task, project, stored = _find_outputs(request, task_id)
        if not stored:
            return _serve_file(request, outputs.open_tree(task.pk), query["path"])
        file = folders.get_file(project, paths.normalize_path(query["path"]), task=task.pk)
        if file.folder:
            raise ApiError(409, "FILE_IS_FOLDER", "path", path=file.path)
        opened = selectors.open_file(file)
        return responses.make_file_response(request._request, opened, name=file.name, size=file.size, tag=file.sha256)


class TaskOutputArchiveView(APIView):
    @operation(
        "downloadTaskOutputs",
        cost=10,
        scope="outputs:read",
        query=OutputArchiveQuery,
        media="application/zip",
        other_media="application/x-tar",
    )
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """Return everything that the task has written, or one folder of it, as one archive (zip or tar)."""
        task, project, stored = _find_outputs(request, task_id)
        name = query["path"].rstrip("/").rpartition("/")[2] or task.pk
        if stored:
            path = paths.normalize_path(query["path"], root=True)
            return responses.make_archive_response(
                query["format"], name, selectors.list_archive_members(project, path, task.pk)
            )
        path = query["path"].strip("/")
        return responses.make_archive_response(
            query["format"], name, selectors.list_tree_members(outputs.open_tree(task.pk), path)
        )


class TaskCheckpointContentView(APIView):
    @operation(
        "downloadTaskCheckpoint",
        scope="outputs:read",
        query=OutputKey,
        media="application/octet-stream",
        other_media="application/x-tar",
        headers=["Range", "If-None-Match"],
    )
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """Return a checkpoint by its `path` in the list: a file as it is, a folder as a tar."""
        tree, path = locate_checkpoint(actions.find_task(request.user, task_id), query["path"])
        try:
            folder = tree.get_entry(path).folder
        except OSError as error:
            raise ApiError(404, "CHECKPOINT_NOT_FOUND", "path", path=query["path"]) from error
        if folder:
            return responses.make_archive_response(
                "tar", path.rpartition("/")[2], selectors.list_tree_members(tree, path)
            )
        return _serve_file(request, tree, path)


def _serve_file(request: Request, tree: SafeTree, path: str) -> Data:
    """Return the file as a response. Its tag is its modification time and size: a file that is still written has no
    hash."""
    try:
        entry = tree.get_entry(path)
        if entry.folder:
            raise ApiError(409, "FILE_IS_FOLDER", "path", path=path)
        file = tree.open(path)
    except (OSError, ValueError) as error:
        raise ApiError(404, "FILE_NOT_FOUND", "path", path=path) from error
    tag = f"{entry.size:x}-{int(entry.at * 1e6):x}"
    return responses.make_file_response(request._request, file, name=entry.name, size=entry.size, tag=tag)
