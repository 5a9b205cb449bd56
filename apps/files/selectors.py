"""Queries of files: listings, contents, and a project's usage."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, BinaryIO

from django.db.models import QuerySet

from apps.accounts import access
from apps.accounts.access import AnyUser
from apps.accounts.models import Project, Role
from apps.common.errors import ApiError
from apps.common.texts import serialize_error
from apps.files import paths
from apps.files.archives import ArchiveMember
from apps.files.models import File, LibraryCache, Upload, UploadState
from apps.files.services import folders, library_caches, quota, uploads
from apps.files.store import StoreUnusableError, get_store, make_key
from fermi.engines.safe_tree import SafeTree, SafeTreeEntry


def list_files(project: Project, path: str, search: str = "", task: str = "") -> QuerySet[File]:
    """Return what is in a folder; with `search`, all below it whose name contains it. Raises ApiError 404."""
    shown = folders.list_visible_files(project, task).select_related("by")
    if (
        path
        and not shown.filter(folder=True, parent=paths.split_path(path)[0], name=paths.split_path(path)[1]).exists()
    ):
        raise ApiError(404, "FILE_NOT_FOUND", "path", path=path)
    if search:
        return folders.filter_below(shown, path).filter(name__icontains=search)
    return shown.filter(parent=path)


def serialize_file(file: File) -> dict[str, Any]:
    return {
        "path": file.path,
        "name": file.name,
        "kind": "folder" if file.folder else "file",
        "sizeBytes": None if file.folder else file.size,
        "sha256": file.sha256,
        "modifiedAt": file.changed_at,
        "by": file.by.username if file.by else "",
        "busy": bool(file.doing),
    }


def serialize_entry(entry: SafeTreeEntry) -> dict[str, Any]:
    """Return an entry of a folder on disk, of which no hashes are known."""
    return {
        "path": entry.path,
        "name": entry.name,
        "kind": "folder" if entry.folder else "file",
        "sizeBytes": None if entry.folder else entry.size,
        "sha256": "",
        "modifiedAt": datetime.fromtimestamp(entry.at, UTC),
        "by": "",
        "busy": False,
    }


def serialize_upload(upload: Upload) -> dict[str, Any]:
    return {
        "id": upload.pk,
        "path": upload.path,
        "sizeBytes": upload.size,
        "sha256": upload.sha256,
        "state": upload.state,
        "offset": uploads.get_offset(upload),
        "by": upload.user.username,
        "error": serialize_error(upload.error),
        "createdAt": upload.created_at,
        "expiresAt": upload.touched_at + uploads.UPLOAD_LIFETIME,
    }


def list_uploads(user: AnyUser, project: Project) -> QuerySet[Upload]:
    """Return the user's own uploads; for a maintainer all uploads of the project."""
    found = Upload.objects.filter(project=project).exclude(state=UploadState.DONE).select_related("user")
    if access.get_role(user, project) == Role.MAINTAINER:
        return found
    return found.filter(user_id=user.pk or 0)


def serialize_usage(project: Project) -> dict[str, Any]:
    use = quota.read_usage(project.pk)
    return {
        "usedBytes": use.all,
        "fileBytes": use.files,
        "arrivingBytes": use.arriving,
        "outputBytes": use.outputs,
        "maxFileBytes": use.most,
        "place": get_store().get_location(project.pk),
        "remote": get_store().remote,
    }


def serialize_cache(user: AnyUser, project: Project) -> dict[str, Any]:
    """Return what is known of the project's cache of libraries."""
    row = LibraryCache.objects.filter(project=project).first() or LibraryCache(project=project)
    return {
        "sizeBytes": row.size,
        "maxBytes": library_caches.get_limit(project),
        "excessBytes": row.excess,
        "units": row.count,
        "complete": row.is_complete,
        "largest": [
            {"path": unit["path"], "sizeBytes": unit["size"], "usedAt": unit["usedAt"]} for unit in row.largest
        ],
        "error": row.error,
        "measuredAt": row.measured_at,
        "cleanedAt": row.cleaned_at,
        "freedBytes": row.freed,
        "mayClean": access.get_role(user, project) == Role.MAINTAINER,
    }


def open_file(file: File) -> BinaryIO:
    """Open a file's content, also while it is being moved. Raises ApiError."""
    at = [file.path, *([file.source] if file.source else [])]
    try:
        for path in at:
            try:
                return get_store().open(make_key(file.project_id, path, file.task))
            except FileNotFoundError:
                continue
    except StoreUnusableError as error:
        raise ApiError(503, "STORE_UNUSABLE", why=str(error)) from error
    raise ApiError(404, "FILE_GONE", "path", path=file.path)


def list_archive_members(project: Project, path: str, task: str = "") -> Iterator[ArchiveMember]:
    """Yield all files below `path`, with names that begin with the folder's own name."""
    top = len(paths.split_path(path)[0]) + 1 if "/" in path else 0
    found = folders.filter_below(folders.list_visible_files(project, task), path).order_by("parent", "name")
    for file in found.iterator(chunk_size=1000):
        yield ArchiveMember(
            name=file.path[top:],
            size=file.size,
            at=file.changed_at.timestamp(),
            open=None if file.folder else _make_opener(file),
        )


def _make_opener(file: File) -> Any:
    def begin() -> BinaryIO:
        try:
            return open_file(file)
        except ApiError as error:
            raise OSError(error.code) from error

    return begin


def list_tree_members(tree: SafeTree, path: str) -> Iterator[ArchiveMember]:
    top = len(path.rpartition("/")[0]) + 1 if "/" in path else 0
    for entry in tree.walk(path):
        yield ArchiveMember(
            name=entry.path[top:],
            size=entry.size,
            at=entry.at,
            open=None if entry.folder else (lambda at=entry.path: tree.open(at)),  # type: ignore[misc]
        )


def paginate_tree(tree: SafeTree, path: str, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return one page of a folder on disk, in the shape of `apps.common.pages.paginate_rows`."""
    word = query["search"].casefold()
    try:
        found = (
            [entry for entry in tree.walk(path) if word in entry.name.casefold()] if word else tree.list_entries(path)
        )
    except OSError as error:
        if path:
            raise ApiError(404, "FILE_NOT_FOUND", "path", path=path) from error
        found = []
    number, size = query["page"], query["pageSize"]
    shown = [serialize_entry(entry) for entry in found[(number - 1) * size : number * size]]
    return {"items": shown, "total": len(found), "page": number, "pageSize": size}
