"""Uploads: started with path, size and hash, sent in pieces by offset, verified, and put in place whole.

    receiving ──all bytes received──▶ checking ──hash matches──▶ done
                                         └────else──────────▶ failed

A client that was interrupted starts again with the same path, size and hash, gets the same upload, and continues at its
offset.
"""

import fcntl
import hashlib
import logging
import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import IO

from django.conf import settings
from django.db import transaction

from apps.accounts import access, audit
from apps.accounts.models import Project, Role, User
from apps.common import claims, disks, wakeups
from apps.common.bounds import MAX_UPLOADS
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.files import paths
from apps.files.models import File, PendingOperation, Upload, UploadState
from apps.files.services import folders, quota
from apps.files.store import StoreUnusableError, get_store, make_key
from fermi.schema import humanize

log = logging.getLogger(__name__)

UPLOAD_LIFETIME = timedelta(days=1)
"""How long an unused upload is kept, and the row of one that has ended."""
BUSY_RETRY_DELAY, RETRY_DELAY = timedelta(seconds=2), timedelta(seconds=60)
CLAIM_SPAN = timedelta(seconds=30)
MAX_INLINE_BYTES = 64 << 20
"""Uploads up to this size are verified within the request."""
CHUNK_BYTES = 1 << 20


def start_upload(user: User, project: Project, *, path: str, size: int, sha256: str, replace: bool = False) -> Upload:
    """Return the upload to continue with (member), a new one or one in progress with the same path, size and hash. If
    the same content is there already, the upload is done. Raises ApiError."""
    access.require_role(user, project, Role.MEMBER)
    path, sha256 = paths.normalize_path(path), sha256.lower()
    parent, name = paths.split_path(path)
    moment = now()
    with transaction.atomic():
        there = folders.list_visible_files(project).filter(parent=parent, name=name).first()
        if there and there.folder:
            raise ApiError(409, "FILE_IN_THE_WAY", "path", path=path)
        own = {"project": project, "user": user, "path": path, "size": size, "sha256": sha256}
        if there and not there.doing and (there.size, there.sha256) == (size, sha256):
            return Upload(**own, id="", state=UploadState.DONE, created_at=moment, touched_at=moment)
        going_on = [UploadState.RECEIVING, UploadState.CHECKING]
        if mine := Upload.objects.filter(**own, state__in=going_on).order_by("created_at").first():
            Upload.objects.filter(pk=mine.pk).update(touched_at=moment)
            if mine.state == UploadState.RECEIVING:
                _make_staged_file(mine)
            return mine
        if there:
            if not replace:
                raise ApiError(409, "FILE_EXISTS", "path", path=path)
            folders.require_ownership(user, project, [there])
        for folder in paths.list_parents(path):
            above, last = paths.split_path(folder)
            if File.objects.filter(project=project, task="", parent=above, name=last, folder=False).exists():
                raise ApiError(409, "FILE_IN_THE_WAY", "path", path=folder)
        quota.check_space(project.pk, size, there.size if there else 0)
        _refuse_too_many(user, project)
        _refuse_too_large(size)
        upload = Upload.objects.create(**own, created_at=moment, touched_at=moment)
    _make_staged_file(upload)
    return upload


def _refuse_too_many(user: User, project: Project) -> None:
    under_way = Upload.objects.filter(
        project=project, user=user, state__in=[UploadState.RECEIVING, UploadState.CHECKING]
    )
    if under_way.count() >= MAX_UPLOADS:
        raise ApiError(409, "UPLOADS_TOO_MANY", limit=MAX_UPLOADS)


def _refuse_too_large(bytes_: int) -> None:
    """Raise ApiError 413 for a file that is larger than allowed, or than the free space of the staging folder without
    what other uploads have yet to send."""
    most = settings.FILES_MAX_FILE_GB << 30
    if bytes_ > most:
        raise ApiError(
            413, "UPLOAD_TOO_LARGE", "sizeBytes", found=humanize.format_bytes(bytes_), limit=humanize.format_bytes(most)
        )
    staging = get_store().staging
    place = next(folder for folder in (staging, *staging.parents) if folder.exists())
    if not (room := disks.read_free_space(str(place))):
        return
    receiving = Upload.objects.filter(state=UploadState.RECEIVING)
    free = room["free"] - sum(max(one.size - get_offset(one), 0) for one in receiving)
    if bytes_ > free:
        told = {"found": humanize.format_bytes(bytes_), "free": humanize.format_bytes(max(free, 0))}
        raise ApiError(413, "UPLOAD_NO_ROOM", "sizeBytes", **told)


def get_upload(user: User, project: Project, upload_id: str) -> Upload:
    """Return the user's upload; for a maintainer any upload of the project. Raises ApiError 404."""
    row = Upload.objects.filter(project=project, pk=upload_id).first()
    if row is None or (row.user_id != user.pk and access.get_role(user, project) != Role.MAINTAINER):
        raise ApiError(404, "UPLOAD_NOT_FOUND")
    return row


def get_offset(upload: Upload) -> int:
    """Return how many bytes were received."""
    if upload.state != UploadState.RECEIVING:
        return upload.size
    try:
        return get_staged_path(upload.pk).stat().st_size
    except FileNotFoundError:
        return 0


def append_piece(user: User, project: Project, upload_id: str, begin: int, body: IO[bytes]) -> Upload:
    """Write a piece at its offset. A piece that is repeated, or in part, leaves the file as it should be. Raises
    ApiError 409 if bytes before it are missing; the upload's `offset` says where to continue."""
    upload = get_upload(user, project, upload_id)
    access.require_role(user, project, Role.MEMBER)
    if upload.state != UploadState.RECEIVING:
        return upload
    try:
        _write_piece(upload, begin, body)
    except OSError as error:
        raise ApiError(507, "DISK_UNUSABLE", path=str(get_store().staging), why=error.strerror or str(error)) from error
    Upload.objects.filter(pk=upload.pk).update(touched_at=now())
    return upload


def _write_piece(upload: Upload, begin: int, body: IO[bytes]) -> None:
    there = os.open(
        get_staged_path(upload.pk), os.O_WRONLY | os.O_APPEND
    )  # one that has been put in place is not made anew
    with os.fdopen(there, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = os.fstat(file.fileno()).st_size
        if begin > size:
            raise ApiError(409, "UPLOAD_GAP", "offset", found=begin, offset=size)
        body.seek(0, os.SEEK_END)
        if begin + body.tell() > upload.size:
            raise ApiError(409, "UPLOAD_TOO_LONG", "offset", found=begin + body.tell(), size=upload.size)
        body.seek(size - begin)
        while piece := body.read(CHUNK_BYTES):
            file.write(piece)


def finish_upload(user: User, project: Project, upload_id: str) -> Upload:
    """Verify the upload when all bytes were received: small ones at once, others by the sweep. Repeating it changes
    nothing."""
    upload = get_upload(user, project, upload_id)
    access.require_role(user, project, Role.MEMBER)
    there = get_offset(upload)
    if there < upload.size:
        raise ApiError(409, "UPLOAD_INCOMPLETE", found=there, size=upload.size)
    with transaction.atomic():
        rows = Upload.objects.filter(pk=upload.pk, state=UploadState.RECEIVING)
        if rows.update(state=UploadState.CHECKING, due_at=now(), touched_at=now()):
            wakeups.enqueue_after_commit("files.sweep")
    upload.refresh_from_db()
    if upload.state == UploadState.CHECKING and upload.size <= MAX_INLINE_BYTES:
        check_upload(upload)
        upload.refresh_from_db()
    return upload


def cancel_upload(user: User, project: Project, upload_id: str) -> None:
    """Delete an upload that is receiving or failed. Raises ApiError 409."""
    upload = get_upload(user, project, upload_id)
    access.require_role(user, project, Role.MEMBER)
    if not Upload.objects.filter(pk=upload.pk, state__in=[UploadState.RECEIVING, UploadState.FAILED]).delete()[0]:
        raise ApiError(409, "UPLOAD_NOT_OPEN", status=upload.state)
    get_staged_path(upload.pk).unlink(missing_ok=True)


def check_upload(upload: Upload) -> None:
    """Verify an upload and put its content in place. Does nothing if another process has claimed it."""
    if upload.due_at is None or upload.due_at > now() or (claim := claims.claim_row(upload, CLAIM_SPAN)) is None:
        return
    with claim.kept(), suppress(claims.ClaimLostError):
        try:
            _check_content(upload, claim)
        except ApiError as error:
            problem = error.problems[0]
            if error.code == "FILE_BUSY":
                claim.write(due_at=now() + BUSY_RETRY_DELAY)
                return
            _fail_upload(upload, claim, problem.code, dict(problem.params))
        except (OSError, StoreUnusableError) as error:
            log.warning("cannot put %s in place: %s", upload, error)
            claim.write(due_at=now() + RETRY_DELAY)


def _check_content(upload: Upload, claim: claims.RowClaim) -> None:
    source, project = get_staged_path(upload.pk), upload.project
    parent, name = paths.split_path(upload.path)
    rows = File.objects.filter(project=project, task="", parent=parent, name=name)
    placed = rows.filter(doing=PendingOperation.PUT, upload=upload.pk).exists()
    if source.exists():
        found = _hash_file(source)
        if found != upload.sha256:
            raise ApiError(409, "UPLOAD_CORRUPT", found=found, expected=upload.sha256)
        with claim.fenced():
            _reserve_name(upload)
        get_store().put(source, make_key(project.pk, upload.path))
    elif not placed or get_store().size(make_key(project.pk, upload.path)) != upload.size:
        raise ApiError(409, "UPLOAD_LOST")
    with claim.fenced(state=UploadState.DONE, due_at=None, touched_at=now()):
        settled = {"doing": PendingOperation.NOTHING, "upload": "", "size": upload.size, "sha256": upload.sha256}
        rows.filter(upload=upload.pk).update(**settled, by=upload.user, changed_at=now(), due_at=None)
        audit.record_event(
            upload.user, "file.put", upload.path, project=project, size=upload.size, sha256=upload.sha256
        )
    source.unlink(missing_ok=True)


def _reserve_name(upload: Upload) -> None:
    """Reserve the name for this upload until its content is in place."""
    project, path = upload.project, upload.path
    parent, name = paths.split_path(path)
    folders.require_free_path(project, path)
    folders.ensure_folders(project, paths.list_parents(path), upload.user)
    own = {"by": upload.user, "changed_at": now()}
    row, _ = File.objects.get_or_create(project=project, task="", parent=parent, name=name, defaults=own)
    if row.folder:
        raise ApiError(409, "FILE_IN_THE_WAY", path=path)
    if row.upload not in ("", upload.pk):
        raise ApiError(409, "FILE_BUSY", path=path)
    File.objects.filter(pk=row.pk).update(doing=PendingOperation.PUT, upload=upload.pk)


def _fail_upload(upload: Upload, claim: claims.RowClaim, code: str, params: dict[str, object]) -> None:
    error = {"code": code, **params}
    with claim.fenced(state=UploadState.FAILED, error=error, due_at=None, touched_at=now()):
        rows = File.objects.filter(project=upload.project_id, upload=upload.pk)
        rows.filter(sha256="").delete()
        rows.update(doing=PendingOperation.NOTHING, upload="")
    get_staged_path(upload.pk).unlink(missing_ok=True)


def check_due_uploads() -> None:
    """Verify the uploads that are due."""
    for upload in Upload.objects.filter(state=UploadState.CHECKING, due_at__lte=now()).order_by("due_at"):
        check_upload(upload)


def delete_expired() -> None:
    """Delete uploads that were not used for UPLOAD_LIFETIME, and files in the staging folder without an upload."""
    old = Upload.objects.exclude(state=UploadState.CHECKING).filter(touched_at__lt=now() - UPLOAD_LIFETIME)
    for upload in old.select_related("project"):
        with transaction.atomic():
            if upload.state == UploadState.RECEIVING:
                audit.record_event(None, "file.upload-abandoned", upload.path, project=upload.project, size=upload.size)
            upload.delete()
    if not get_store().staging.is_dir():
        return
    for left in list(get_store().staging.iterdir()):
        aged = now().timestamp() - left.stat().st_mtime > UPLOAD_LIFETIME.total_seconds()
        if aged and not Upload.objects.filter(pk=left.name).exists():
            left.unlink(missing_ok=True)


def get_staged_path(upload_id: str) -> Path:
    """Return the path of an upload's file in the staging folder."""
    return get_store().staging / upload_id


def _make_staged_file(upload: Upload) -> None:
    try:
        get_store().staging.mkdir(parents=True, exist_ok=True, mode=0o700)
        get_staged_path(upload.pk).touch(mode=0o644)
    except OSError as error:
        raise ApiError(507, "DISK_UNUSABLE", path=str(get_store().staging), why=error.strerror or str(error)) from error


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    return found
