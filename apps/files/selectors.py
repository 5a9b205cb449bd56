"""Queries of files: listings, contents, and a project's usage."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, BinaryIO

from django.db.models import QuerySet

from apps.accounts import access
from apps.accounts.access import Someone
from apps.accounts.models import Project, Role
from apps.common.errors import ApiError
from apps.common.texts import text
from apps.files import paths
from apps.files.archives import Member
from apps.files.models import File, Upload, UploadState
from apps.files.services import folders, quota, uploads
from apps.files.store import Unusable, key, store
from fermi.engines.safe_tree import Entry, Tree


def rows(project: Project, path: str, search: str = "", task: str = "") -> QuerySet[File]:
    """Return what is in a folder; with `search`, all below it whose name contains it. Raises ApiError 404."""
    shown = folders.shown(project, task).select_related("by")
    if path and not shown.filter(folder=True, parent=paths.split(path)[0], name=paths.split(path)[1]).exists():
        raise ApiError(404, "FILE_NOT_FOUND", "path", path=path)
    if search:
        return folders.below(shown, path).filter(name__icontains=search)
    return shown.filter(parent=path)


def file_shown(file: File) -> dict[str, Any]:
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


def entry_shown(entry: Entry) -> dict[str, Any]:
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


def upload_shown(upload: Upload) -> dict[str, Any]:
    error = None
    if upload.error:
        message, hint = text(upload.error["code"], upload.error)
        error = {"code": upload.error["code"], "message": message, "hint": hint}
    return {
        "id": upload.pk,
        "path": upload.path,
        "sizeBytes": upload.size,
        "sha256": upload.sha256,
        "state": upload.state,
        "offset": uploads.offset(upload),
        "by": upload.user.username,
        "error": error,
        "createdAt": upload.created_at,
        "expiresAt": upload.touched_at + uploads.LIFE,
    }


def under_way(user: Someone, project: Project) -> QuerySet[Upload]:
    """Return the user's own uploads; for a maintainer all uploads of the project."""
    found = Upload.objects.filter(project=project).exclude(state=UploadState.DONE).select_related("user")
    if access.role_in(user, project) == Role.MAINTAINER:
        return found
    return found.filter(user_id=user.pk or 0)


def use_shown(project: Project) -> dict[str, Any]:
    use = quota.use(project.pk)
    return {
        "usedBytes": use.all,
        "fileBytes": use.files,
        "arrivingBytes": use.arriving,
        "outputBytes": use.outputs,
        "maxFileBytes": use.most,
        "place": store().place(project.pk),
        "remote": store().remote,
    }


def opened(file: File) -> BinaryIO:
    """Open a file's content, also while it is being moved. Raises ApiError."""
    at = [file.path, *([file.source] if file.source else [])]
    try:
        for path in at:
            try:
                return store().open(key(file.project_id, path, file.task))
            except FileNotFoundError:
                continue
    except Unusable as error:
        raise ApiError(503, "STORE_UNUSABLE", why=str(error)) from error
    raise ApiError(404, "FILE_GONE", "path", path=file.path)


def members(project: Project, path: str, task: str = "") -> Iterator[Member]:
    """Yield all files below `path`, with names that begin with the folder's own name."""
    top = len(paths.split(path)[0]) + 1 if "/" in path else 0
    found = folders.below(folders.shown(project, task), path).order_by("parent", "name")
    for file in found.iterator(chunk_size=1000):
        yield Member(
            name=file.path[top:],
            size=file.size,
            at=file.changed_at.timestamp(),
            open=None if file.folder else _opener(file),
        )


def _opener(file: File) -> Any:
    def begin() -> BinaryIO:
        try:
            return opened(file)
        except ApiError as error:
            raise OSError(error.code) from error

    return begin


def tree_members(tree: Tree, path: str) -> Iterator[Member]:
    top = len(path.rpartition("/")[0]) + 1 if "/" in path else 0
    for entry in tree.walk(path):
        yield Member(
            name=entry.path[top:],
            size=entry.size,
            at=entry.at,
            open=None if entry.folder else (lambda at=entry.path: tree.open(at)),  # type: ignore[misc]
        )


def tree_page(tree: Tree, path: str, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return one page of a folder on disk, in the shape of `apps.common.pages.paginate_rows`."""
    word = query["search"].casefold()
    try:
        found = [entry for entry in tree.walk(path) if word in entry.name.casefold()] if word else tree.entries(path)
    except OSError as error:
        if path:
            raise ApiError(404, "FILE_NOT_FOUND", "path", path=path) from error
        found = []
    number, size = query["page"], query["pageSize"]
    shown = [entry_shown(entry) for entry in found[(number - 1) * size : number * size]]
    return {"items": shown, "total": len(found), "page": number, "pageSize": size}
