"""Files and folders of a project: creating, moving and deleting. Rows change at once, in one transaction; the store
follows (`store_sync`). A folder is a row only: the store has files."""

from collections.abc import Iterable

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from apps.accounts import access, audit
from apps.accounts.models import Project, Role, User
from apps.common import wakeups
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.files import paths
from apps.files.models import File, PendingOperation
from apps.files.services import quota, store_sync


def get_file(project: Project, path: str, field: str = "path", task: str = "") -> File:
    """Return the visible file or folder at `path`, which is normalised. Raises ApiError 404."""
    parent, name = paths.split_path(path)
    row = list_visible_files(project, task).filter(parent=parent, name=name).first()
    if row is None:
        raise ApiError(404, "FILE_NOT_FOUND", field, path=path)
    return row


def list_visible_files(project: Project, task: str = "") -> QuerySet[File]:
    """Return files and folders without those that have not arrived or are being deleted."""
    rows = File.objects.filter(project=project, task=task).exclude(doing=PendingOperation.DELETE)
    return rows.filter(Q(folder=True) | ~Q(sha256=""))


def filter_below(rows: QuerySet[File], path: str) -> QuerySet[File]:
    """Return the rows below a folder; all rows for the root."""
    return rows.filter(Q(parent=path) | Q(parent__startswith=f"{path}/")) if path else rows


def create_folder(user: User, project: Project, path: str) -> File:
    """Create a folder and its parents (member). Repeating it changes nothing."""
    access.require_role(user, project, Role.MEMBER)
    path = paths.normalize_path(path)
    with transaction.atomic():
        quota.check_entry_count(project.pk)
        if made := ensure_folders(project, [*paths.list_parents(path), path], user):
            audit.record_event(user, "file.make-folder", made[-1], project=project)
    return get_file(project, path)


def ensure_folders(project: Project, folder_paths: Iterable[str], user: User | None, task: str = "") -> list[str]:
    """Create the folders that do not exist, in a transaction; return their paths. Raises ApiError 409 if a file is in
    the way."""
    made = []
    for path in folder_paths:
        parent, name = paths.split_path(path)
        own = {"folder": True, "by": user, "changed_at": now()}
        row, new = File.objects.get_or_create(project=project, task=task, parent=parent, name=name, defaults=own)
        if not row.folder:
            raise ApiError(409, "FILE_IN_THE_WAY", "path", path=path)
        made += [path] if new else []
    return made


def move_file(user: User, project: Project, path: str, to: str) -> File:
    """Move a file, or a folder with its contents, to a free path (member). Raises ApiError 409."""
    access.require_role(user, project, Role.MEMBER)
    path, to = paths.normalize_path(path), paths.normalize_path(to, "to")
    if to == path:
        return get_file(project, path)
    if to.startswith(f"{path}/"):
        raise ApiError(409, "FILE_INTO_ITSELF", "to", path=path)
    try:
        with transaction.atomic():
            row = get_file(project, path)
            files = _list_changeable_files(user, project, row)
            parent, name = paths.split_path(to)
            if File.objects.filter(project=project, task="", parent=parent, name=name).exists():
                raise ApiError(409, "FILE_EXISTS", "to", path=to)
            require_free_path(project, to)
            ensure_folders(project, paths.list_parents(to), user)
            _rename_rows(project, row, files, path, to)
            audit.record_event(user, "file.move", path, project=project, to=to)
            wakeups.enqueue_after_commit("files.sweep")
    except IntegrityError:
        raise ApiError(409, "FILE_EXISTS", "to", path=to) from None
    store_sync.apply_pending(project, list_at_or_below(project, to))
    return get_file(project, to)


def _rename_rows(project: Project, row: File, files: list[File], path: str, to: str) -> None:
    moment = now()
    if row.folder:
        for folder in filter_below(File.objects.filter(project=project, task="", folder=True), path):
            folder.parent = to + folder.parent[len(path) :]
            paths.normalize_path(folder.path, "to")
            folder.save(update_fields=["parent"])
        row.parent, row.name = paths.split_path(to)
        row.save(update_fields=["parent", "name"])
    for file in files:
        file.source, file.doing, file.due_at = file.path, PendingOperation.MOVE, moment
        file.parent, file.name = paths.split_path(to + file.path[len(path) :])
        paths.normalize_path(file.path, "to")
    File.objects.bulk_update(files, ["source", "doing", "due_at", "parent", "name"], batch_size=100)


def delete_file(user: User, project: Project, path: str, *, recursive: bool = False) -> None:
    """Delete a file or folder (member): from the list at once, from the store soon after. Raises ApiError 409 for a
    folder with contents, unless `recursive`."""
    access.require_role(user, project, Role.MEMBER)
    path = paths.normalize_path(path)
    with transaction.atomic():
        row = get_file(project, path)
        files = _list_changeable_files(user, project, row)
        inside = filter_below(list_visible_files(project), path).count() if row.folder else 0
        if inside and not recursive:
            raise ApiError(409, "FOLDER_NOT_EMPTY", "path", path=path, count=inside)
        keys = [file.pk for file in files]
        schedule_deletion(File.objects.filter(project=project, task=""), keys)
        if row.folder:
            filter_below(File.objects.filter(project=project, task="", folder=True), path).delete()
            row.delete()
        audit.record_event(
            user, "file.delete", path, project=project, files=len(files), bytes=sum(f.size for f in files)
        )
        wakeups.enqueue_after_commit("files.sweep")
    store_sync.apply_pending(project, File.objects.filter(project=project, doing=PendingOperation.DELETE))


def schedule_deletion(rows: QuerySet[File], keys: list[int]) -> None:
    """Have the store delete these files."""
    for begin in range(0, len(keys), 500):
        rows.filter(pk__in=keys[begin : begin + 500]).update(doing=PendingOperation.DELETE, due_at=now())


def list_at_or_below(project: Project, path: str) -> QuerySet[File]:
    """Return the rows at a path and below it."""
    parent, name = paths.split_path(path)
    rows = File.objects.filter(project=project, task="")
    return rows.filter(Q(parent=parent, name=name) | Q(parent=path) | Q(parent__startswith=f"{path}/"))


def _list_changeable_files(user: User, project: Project, row: File) -> list[File]:
    """Return the files that `row` is or contains. Raises ApiError unless `user` may change all of them: their owner or
    a maintainer."""
    rows = (
        filter_below(File.objects.filter(project=project, task=""), row.path)
        if row.folder
        else File.objects.filter(pk=row.pk)
    )
    files = list(rows.filter(folder=False).exclude(doing=PendingOperation.DELETE).order_by("pk"))
    if busy := next((file for file in files if file.doing), None):
        raise ApiError(409, "FILE_BUSY", "path", path=busy.path)
    require_ownership(user, project, files)
    return files


def require_ownership(user: User, project: Project, files: Iterable[File]) -> None:
    """Raise ApiError 403 unless the user owns the files or is a maintainer."""
    if access.get_role(user, project) == Role.MAINTAINER:
        return
    if other := next((file for file in files if file.by_id != user.pk), None):
        raise ApiError(403, "FILE_OF_ANOTHER", "path", path=other.path)


def require_free_path(project: Project, path: str) -> None:
    """Raise ApiError 409 if the content of another file is still at this path, or is being deleted."""
    parent, name = paths.split_path(path)
    rows = File.objects.filter(project=project, task="")
    if rows.filter(
        Q(parent=parent, name=name, doing__in=[PendingOperation.DELETE, PendingOperation.MOVE]) | Q(source=path)
    ).exists():
        raise ApiError(409, "FILE_BUSY", "path", path=path)
