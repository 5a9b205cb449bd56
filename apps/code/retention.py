"""Deletes snapshots that no task refers to and that were not used for a while, uploads that were never finished, and
then contents, manifests and archives that nothing refers to.

Rows go first. Code that refers to a snapshot calls `record_use` in the same transaction: either the row is gone and the
snapshot is unknown, or it stays. Files are removed under the lock under which uploads check what exists
(`store.lock_store`); recent files are never removed, because their rows may be yet to come.
"""

import time
from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.db.models import Q

from apps.code import store
from apps.code.models import Blob, Fetch, FetchStatus, Snapshot
from apps.common.clock import now
from apps.common.retention import delete_old

KEEP_UNFINISHED_FOR = timedelta(days=1)
"""How long an upload may be interrupted, and how old a file must be before it is removed."""
BATCH_ROWS = 500


def record_use(project_id: str, digest: str) -> bool:
    """Record the use of a snapshot, in the transaction that refers to it. Returns False if it does not exist any
    more."""
    return bool(Snapshot.objects.filter(project=project_id, digest=digest).update(used_at=now()))


def delete_expired(in_tasks: Collection[tuple[str, str]], running: Collection[str]) -> int:
    """Delete expired snapshots and files. Returns how many snapshots. `in_tasks`: project and digest of the snapshots
    that tasks were created from; `running`: digests of tasks that have not ended, whose archives nodes may be about to
    read."""
    moment = now()
    before = moment - timedelta(days=settings.CODE_KEEP_DAYS)
    delete_old(Fetch.objects.exclude(status=FetchStatus.FETCHING).filter(created_at__lt=before))
    idle = Q(used_at__lt=before) | Q(finished_at=None, used_at__lt=moment - KEEP_UNFINISHED_FOR)
    old = Snapshot.objects.filter(idle).exclude(pk__in=Fetch.objects.exclude(snapshot=None).values("snapshot"))
    gone = 0
    for row in old:
        if (row.project_id, row.digest) not in in_tasks:
            gone += Snapshot.objects.filter(idle, pk=row.pk).delete()[0]
    _delete_files(running)
    return gone


def _delete_files(running: Collection[str]) -> None:
    aged = time.time() - KEEP_UNFINISHED_FOR.total_seconds()
    with store.lock_store(alone=True):
        known = set(Snapshot.objects.values_list("digest", flat=True))
        unknown = [
            path for path in _list_older_files(store.get_root() / "manifests", "*.json", aged) if path.stem not in known
        ]
        if unknown:
            _delete_unused_blobs(aged)
        for path in unknown:  # last: until then there is something to be done
            path.unlink(missing_ok=True)
        for path in _list_older_files(store.get_archive_folder(""), "*", aged):
            if path.name not in running:
                store.delete_archive(path.name)
        for pattern in ("blobs/*/.*", "manifests/.*"):  # of a process that died while it wrote
            for path in _list_older_files(store.get_root(), pattern, aged):
                path.unlink(missing_ok=True)


def _delete_unused_blobs(aged: float) -> None:
    """Delete the rows of contents that no snapshot of the project has, and files that no row refers to."""
    for project in Blob.objects.values_list("project", flat=True).distinct().order_by("project"):
        wanted: set[str] = set()
        for digest in Snapshot.objects.filter(project=project).values_list("digest", flat=True):
            with suppress(OSError):  # a manifest that was removed keeps nothing
                wanted.update(one.sha256 for one in store.list_files(digest))
        rows = Blob.objects.filter(project=project).values_list("pk", "sha256")
        surplus = [pk for pk, sha256 in rows if sha256 not in wanted]
        for at in range(0, len(surplus), BATCH_ROWS):
            Blob.objects.filter(pk__in=surplus[at : at + BATCH_ROWS]).delete()
    owned = set(Blob.objects.values_list("sha256", flat=True))
    for path in _list_older_files(store.get_root() / "blobs", "*/[0-9a-f]*", aged):
        if path.name not in owned:
            path.unlink(missing_ok=True)


def _list_older_files(folder: Path, pattern: str, before: float) -> list[Path]:
    return [path for path in folder.glob(pattern) if path.stat().st_mtime < before]
