"""Receives code: a manifest, the contents that the project does not have yet, and a request that finishes the upload.

    put_manifest ─▶ put_blobs … ─▶ finish          each may come again; what has come is not wanted twice

Whether a content is wanted depends on the project alone: of what others have sent, nobody learns and nobody gets
anything.
"""

import re
from collections.abc import Iterable, Mapping
from typing import IO, Any

from django.conf import settings
from django.db import IntegrityError, transaction

from apps.accounts import access, audit
from apps.accounts.models import Project, Role, User
from apps.code import store
from apps.code.models import Blob, Snapshot
from apps.common.bounds import MAX_SNAPSHOTS
from apps.common.clock import now
from apps.common.errors import ApiError
from fermi.jobs import snapshot
from fermi.jobs.snapshot import SnapshotFile

MIB = 1 << 20
MAX_HEAD_BYTES = 128
MAX_PATCH_LENGTH = 256 * 1024
BATCH_ROWS = 1000
_HEAD = re.compile(rb"([0-9a-f]{64}) (\d{1,15})\n")


def get_upload_project(user: User, project_id: str | None) -> Project:
    """Return the named project, or the only one that the user may change. Raises ApiError."""
    if project_id:
        access.require_role(user, project_id, Role.MEMBER)
        return access.get_project(user, project_id)
    found = list(Project.objects.filter(pk__in=access.select_projects(user, Role.MEMBER)).order_by("pk"))
    found = found or list(Project.objects.all() if user.is_superuser else ())
    if len(found) != 1:
        raise ApiError(400, "CODE_PROJECT_NEEDED", "project", projects=", ".join(one.pk for one in found) or "–")
    return found[0]


def receive_manifest(user: User, project_id: str | None, digest: str, manifest: bytes) -> dict[str, Any]:
    """Store the manifest and return which contents are missing. Raises ApiError."""
    project = get_upload_project(user, project_id)
    if (found := snapshot.compute_snapshot_id(manifest)) != digest:
        raise ApiError(400, "SNAPSHOT_DIFFERS", expected=digest[:12], found=found[:12])
    files = parse_manifest(manifest)
    mine = Snapshot.objects.filter(created_by=user, finished_at=None).exclude(project=project, digest=digest)
    if mine.count() >= MAX_SNAPSHOTS:
        raise ApiError(409, "SNAPSHOTS_UNFINISHED", limit=MAX_SNAPSHOTS)
    store.write_manifest(manifest)
    row = start_snapshot(user, project, digest, files)
    absent = {} if row.finished_at else find_missing_blobs(project, files)
    return {
        "id": digest,
        "projectId": project.pk,
        "finished": row.finished_at is not None,
        "missing": list(absent),
        "missingBytes": sum(absent.values()),
    }


def parse_manifest(manifest: bytes) -> list[SnapshotFile]:
    """Return the manifest's files. Raises ApiError if it is invalid or exceeds a limit."""
    try:
        files = snapshot.parse_manifest(manifest)
    except snapshot.ManifestError as error:
        raise ApiError(400, error.code, **error.params) from error
    check_limits(files)
    return files


def check_limits(files: Iterable[SnapshotFile]) -> None:
    """Raise ApiError, naming the largest files, if the files exceed a limit."""
    files = list(files)
    if len(files) > settings.CODE_MAX_FILES:
        raise ApiError(413, "SNAPSHOT_TOO_MANY_FILES", found=len(files), limit=settings.CODE_MAX_FILES)
    largest = sorted(files, key=lambda one: -one.size)[:5]
    named = ", ".join(f"{one.path} ({one.size / MIB:.1f} MiB)" for one in largest)
    if largest and largest[0].size > settings.CODE_MAX_FILE_MB * MIB:
        raise ApiError(413, "SNAPSHOT_FILE_TOO_LARGE", largest=named, limit=settings.CODE_MAX_FILE_MB)
    if (total := sum(one.size for one in files)) > settings.CODE_MAX_MB * MIB:
        found = f"{total / MIB:.1f}"
        raise ApiError(413, "SNAPSHOT_TOO_LARGE", found=found, largest=named, limit=settings.CODE_MAX_MB)


def start_snapshot(user: User, project: Project, digest: str, files: Iterable[SnapshotFile]) -> Snapshot:
    """Create the snapshot's row, or return the present one, marked as used."""
    files = list(files)
    values = {"files": len(files), "size_bytes": sum(one.size for one in files)}
    try:
        with transaction.atomic():
            made = {**values, "created_by": user, "created_at": now()}
            Snapshot.objects.filter(project=project, digest=digest).update(used_at=now())
            return Snapshot.objects.get_or_create(project=project, digest=digest, defaults=made)[0]
    except IntegrityError:  # the same came twice at the same time
        return Snapshot.objects.get(project=project, digest=digest)


def find_missing_blobs(project: Project, files: Iterable[SnapshotFile]) -> dict[str, int]:
    """Return the size by hash of each content that the project has not sent, or that is not in the store any more."""
    wanted = {one.sha256: one.size for one in files if one.sha256}
    digests = list(wanted)
    with store.lock_store():
        for at in range(0, len(digests), BATCH_ROWS):
            rows = Blob.objects.filter(project=project, sha256__in=digests[at : at + BATCH_ROWS])
            for known in rows.values_list("sha256", flat=True):
                if store.get_blob_path(known).exists():
                    del wanted[known]
    return wanted


def receive_blobs(user: User, project_id: str | None, digest: str, stream: IO[bytes]) -> dict[str, Any]:
    r"""Store contents, each as `<sha256> <size>\n` followed by its bytes. What came before an error is kept."""
    project, row = _get_upload(user, project_id, digest)
    sizes = {one.sha256: one.size for one in store.list_files(digest) if one.sha256}
    return {"id": row.digest, "stored": store_blobs(project, sizes, stream)}


def store_blobs(project: Project, sizes: Mapping[str, int], stream: IO[bytes]) -> int:
    """Read contents from the stream and store them for the project. Returns their number. Raises ApiError."""
    taken: list[str] = []
    try:
        while head := stream.readline(MAX_HEAD_BYTES):
            match = _HEAD.fullmatch(head)
            sha256, size = (match[1].decode(), int(match[2])) if match else ("", 0)
            if sizes.get(sha256) != size:
                raise ApiError(400, "SNAPSHOT_BLOB_UNKNOWN", found=head[:80].decode(errors="replace").strip())
            try:
                store.write_blob(stream, sha256, size)
            except store.DigestMismatchError:
                raise ApiError(400, "SNAPSHOT_BLOB_DIFFERS", sha256=sha256[:12]) from None
            taken.append(sha256)
    finally:
        record_blobs(project, taken)
    return len(taken)


def record_blobs(project: Project, digests: Iterable[str]) -> None:
    """Record that the project has these contents."""
    rows = [Blob(project=project, sha256=one) for one in digests]
    Blob.objects.bulk_create(rows, ignore_conflicts=True, batch_size=BATCH_ROWS)


def finish_upload(
    user: User, project_id: str | None, digest: str, origin: Mapping[str, Any] | None = None, patch: str = ""
) -> Snapshot:
    """Finish an upload. Raises ApiError while contents are missing. Repeating it changes only the origin and the
    patch."""
    project, row = _get_upload(user, project_id, digest)
    if row.finished_at is None and (absent := find_missing_blobs(project, store.list_files(digest))):
        raise ApiError(409, "SNAPSHOT_INCOMPLETE", missing=len(absent))
    return complete_snapshot(user, row, {"kind": "upload", **(origin or {})}, patch)


def complete_snapshot(user: User, row: Snapshot, origin: Mapping[str, Any], patch: str = "") -> Snapshot:
    """Mark the snapshot as finished, with its origin and patch."""
    with transaction.atomic():
        first = Snapshot.objects.filter(pk=row.pk, finished_at=None).update(finished_at=now())
        Snapshot.objects.filter(pk=row.pk).update(origin=dict(origin), patch=patch[:MAX_PATCH_LENGTH])
        if first:
            params = {"files": row.files, "sizeBytes": row.size_bytes, "kind": origin.get("kind", "")}
            audit.record_event(user, "code.add", row.digest, project=row.project_id, **params)
    row.refresh_from_db()
    return row


def _get_upload(user: User, project_id: str | None, digest: str) -> tuple[Project, Snapshot]:
    project = get_upload_project(user, project_id)
    row = Snapshot.objects.filter(project=project, digest=digest).first()
    if row is None:
        raise ApiError(404, "NOT_FOUND")
    return project, row


def get_limits() -> dict[str, int]:
    """Return how much a snapshot may hold."""
    return {"files": settings.CODE_MAX_FILES, "fileMb": settings.CODE_MAX_FILE_MB, "totalMb": settings.CODE_MAX_MB}
