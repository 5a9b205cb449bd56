"""Files and folders of a project: creating, moving and deleting. Rows change at once, in one transaction; the store
follows (`store_sync`). A folder is a row only: the store has files."""

from collections.abc import Iterable

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from apps.accounts import access, audit
from apps.accounts.models import Project, Role, User
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.files import hints, paths
from apps.files.models import Doing, File
from apps.files.services import quota, store_sync


def find(project: Project, path: str, field: str = "path", task: str = "") -> File:
    """Return the visible file or folder at `path`, which is normalised. Raises ApiError 404."""
    parent, name = paths.split(path)
    row = shown(project, task).filter(parent=parent, name=name).first()
    if row is None:
        raise ApiError(404, "FILE_NOT_FOUND", field, path=path)
    return row


def shown(project: Project, task: str = "") -> QuerySet[File]:
    """Return files and folders without those that have not arrived or are being deleted."""
    rows = File.objects.filter(project=project, task=task).exclude(doing=Doing.DELETE)
    return rows.filter(Q(folder=True) | ~Q(sha256=""))


def below(rows: QuerySet[File], path: str) -> QuerySet[File]:
    """Return the rows below a folder; all rows for the root."""
    return rows.filter(Q(parent=path) | Q(parent__startswith=f"{path}/")) if path else rows


def make(user: User, project: Project, path: str) -> File:
    """Create a folder and its parents (member). Repeating it changes nothing."""
    access.require(user, project, Role.MEMBER)
    path = paths.clean(path)
    with transaction.atomic():
        quota.refuse_entries(project.pk)
        if made := ensure(project, [*paths.folders(path), path], user):
            audit.record(user, "file.make-folder", made[-1], project=project)
    return find(project, path)


def ensure(project: Project, wanted: Iterable[str], user: User | None, task: str = "") -> list[str]:
    """Create the folders that do not exist, in a transaction; return their paths. Raises ApiError 409 if a file is in
    the way."""
    made = []
    for path in wanted:
        parent, name = paths.split(path)
        own = {"folder": True, "by": user, "changed_at": now()}
        row, new = File.objects.get_or_create(project=project, task=task, parent=parent, name=name, defaults=own)
        if not row.folder:
            raise ApiError(409, "FILE_IN_THE_WAY", "path", path=path)
        made += [path] if new else []
    return made


def move(user: User, project: Project, path: str, to: str) -> File:
    """Move a file, or a folder with its contents, to a free path (member). Raises ApiError 409."""
    access.require(user, project, Role.MEMBER)
    path, to = paths.clean(path), paths.clean(to, "to")
    if to == path:
        return find(project, path)
    if to.startswith(f"{path}/"):
        raise ApiError(409, "FILE_INTO_ITSELF", "to", path=path)
    try:
        with transaction.atomic():
            row = find(project, path)
            files = _theirs(user, project, row)
            parent, name = paths.split(to)
            if File.objects.filter(project=project, task="", parent=parent, name=name).exists():
                raise ApiError(409, "FILE_EXISTS", "to", path=to)
            refuse_busy(project, to)
            ensure(project, paths.folders(to), user)
            _rename(project, row, files, path, to)
            audit.record(user, "file.move", path, project=project, to=to)
            hints.due()
    except IntegrityError:
        raise ApiError(409, "FILE_EXISTS", "to", path=to) from None
    store_sync.now_or_later(project, below_or_at(project, to))
    return find(project, to)


def _rename(project: Project, row: File, files: list[File], path: str, to: str) -> None:
    moment = now()
    if row.folder:
        for folder in below(File.objects.filter(project=project, task="", folder=True), path):
            folder.parent = to + folder.parent[len(path) :]
            paths.clean(folder.path, "to")
            folder.save(update_fields=["parent"])
        row.parent, row.name = paths.split(to)
        row.save(update_fields=["parent", "name"])
    for file in files:
        file.source, file.doing, file.due_at = file.path, Doing.MOVE, moment
        file.parent, file.name = paths.split(to + file.path[len(path) :])
        paths.clean(file.path, "to")
    File.objects.bulk_update(files, ["source", "doing", "due_at", "parent", "name"], batch_size=100)


def delete(user: User, project: Project, path: str, *, recursive: bool = False) -> None:
    """Delete a file or folder (member): from the list at once, from the store soon after. Raises ApiError 409 for a
    folder with contents, unless `recursive`."""
    access.require(user, project, Role.MEMBER)
    path = paths.clean(path)
    with transaction.atomic():
        row = find(project, path)
        files = _theirs(user, project, row)
        inside = below(shown(project), path).count() if row.folder else 0
        if inside and not recursive:
            raise ApiError(409, "FOLDER_NOT_EMPTY", "path", path=path, count=inside)
        keys = [file.pk for file in files]
        discard(File.objects.filter(project=project, task=""), keys)
        if row.folder:
            below(File.objects.filter(project=project, task="", folder=True), path).delete()
            row.delete()
        audit.record(user, "file.delete", path, project=project, files=len(files), bytes=sum(f.size for f in files))
        hints.due()
    store_sync.now_or_later(project, File.objects.filter(project=project, doing=Doing.DELETE))


def discard(rows: QuerySet[File], keys: list[int]) -> None:
    """Have the store delete these files."""
    for begin in range(0, len(keys), 500):
        rows.filter(pk__in=keys[begin : begin + 500]).update(doing=Doing.DELETE, due_at=now())


def below_or_at(project: Project, path: str) -> QuerySet[File]:
    """Return the rows at a path and below it."""
    parent, name = paths.split(path)
    rows = File.objects.filter(project=project, task="")
    return rows.filter(Q(parent=parent, name=name) | Q(parent=path) | Q(parent__startswith=f"{path}/"))


def _theirs(user: User, project: Project, row: File) -> list[File]:
    """Return the files that `row` is or contains. Raises ApiError unless `user` may change all of them: their owner or
    a maintainer."""
    rows = (
        below(File.objects.filter(project=project, task=""), row.path) if row.folder else File.objects.filter(pk=row.pk)
    )
    files = list(rows.filter(folder=False).exclude(doing=Doing.DELETE).order_by("pk"))
    if busy := next((file for file in files if file.doing), None):
        raise ApiError(409, "FILE_BUSY", "path", path=busy.path)
    refuse_others(user, project, files)
    return files


def refuse_others(user: User, project: Project, files: Iterable[File]) -> None:
    """Raise ApiError 403 unless the user owns the files or is a maintainer."""
    if access.role_in(user, project) == Role.MAINTAINER:
        return
    if other := next((file for file in files if file.by_id != user.pk), None):
        raise ApiError(403, "FILE_OF_ANOTHER", "path", path=other.path)


def refuse_busy(project: Project, path: str) -> None:
    """Raise ApiError 409 if the content of another file is still at this path, or is being deleted."""
    parent, name = paths.split(path)
    rows = File.objects.filter(project=project, task="")
    if rows.filter(Q(parent=parent, name=name, doing__in=[Doing.DELETE, Doing.MOVE]) | Q(source=path)).exists():
        raise ApiError(409, "FILE_BUSY", "path", path=path)
