"""Outputs of tasks: what they write to FERMI_OUTPUT_DIR, a folder in the data directory that only their ranks write to,
and beside their script.

    counted while the task runs ─▶ ended ─▶ counted once more
        └ with object storage: each file is copied there, then FERMI_OUTPUT_DIR is deleted; the working tree is kept
          for a retry and deleted with the task

If a process dies on the way, the row stays due; what was copied is not copied again.
"""

import hashlib
import logging
import math
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from django.conf import settings
from django.db import transaction

from apps.accounts.models import Project
from apps.common import claims, wakeups
from apps.common.clock import now
from apps.files import paths
from apps.files.models import File, Outputs
from apps.files.services import folders
from apps.files.store import StoreUnusableError, get_store, make_key
from apps.files.written_files import TaskFiles
from fermi.engines.safe_tree import SafeTree, SafeTreeEntry
from fermi.jobs.user_paths import OUTPUTS_FOLDER, TREES_FOLDER

log = logging.getLogger(__name__)

COUNT_INTERVAL, RETRY_DELAY = timedelta(seconds=60), timedelta(seconds=60)
CLAIM_SPAN = timedelta(seconds=30)
MAX_COUNTED_FILES = 100_000
"""Names in each of the two folders that are counted while the task runs. After its end all are counted, once."""


def get_job_locations(project: str) -> dict[str, Any]:
    """Return where a job finds its project's files, as fields of `JobSpec`."""
    if not project:
        return {}
    return {"files_url" if get_store().remote else "files_dir": get_store().get_location(project)}


def open_tree(task: str, max_names: float = math.inf) -> SafeTree:
    """Return what the task has written; lists contain at most `max_names` names of each of its two folders."""
    return TaskFiles(Path(settings.DATA_DIR), task, max_names)


def create_outputs(task: str, project: str) -> None:
    """Create the row with the task, in its transaction. The project's folder of files is created too, before a rank
    looks for it."""
    row = Outputs(task=task, project_id=project, due_at=now() + COUNT_INTERVAL)
    Outputs.objects.bulk_create([row], ignore_conflicts=True)
    if not get_store().remote:
        try:
            Path(get_store().get_location(project)).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            log.warning("cannot make the folder of %s: %s", project, error)


def list_due_outputs() -> Iterable[Outputs]:
    """Return the rows that are due, at most 200."""
    return Outputs.objects.filter(due_at__lte=now()).select_related("project").order_by("due_at")[:200]


def update_outputs(row: Outputs, *, ended: bool) -> None:
    """Count the outputs of a due row, or store them. `ended`: nothing writes there any more."""
    claim = claims.claim_row(row, CLAIM_SPAN)
    if claim is None:
        return
    with claim.kept(), suppress(claims.ClaimLostError):
        there = open_tree(row.task, math.inf if ended else MAX_COUNTED_FILES)
        if not row.stored:
            files = [entry for entry in there.walk() if not entry.folder]
            counted = {"size": sum(file.size for file in files), "count": len(files), "counted_at": now()}
            if not ended:
                claim.write(**counted, due_at=now() + COUNT_INTERVAL)
                return
            if not claim.write(**counted) or (
                files and get_store().remote and not _store_files(row, claim, there, files)
            ):
                return
        if get_store().remote:
            there.remove()
        claim.write(due_at=None)


def _store_files(row: Outputs, claim: claims.RowClaim, written: SafeTree, files: list[SafeTreeEntry]) -> bool:
    if odd := next((file.path for file in files if not paths.is_normalized(file.path)), None):
        # they stay where they are, and can be had from there
        claim.write(due_at=None, error=f"{unicodedata.normalize('NFC', odd)[:200]}: name")
        return False
    try:
        for file in files:
            _store_file(row, claim, written, file)
    except (OSError, StoreUnusableError) as error:
        log.warning("cannot store the outputs of %s: %s", row.task, error)
        claim.write(due_at=now() + RETRY_DELAY, error=str(error)[:300])
        return False
    return claim.write(stored=True, error="")


def _store_file(row: Outputs, claim: claims.RowClaim, written: SafeTree, entry: SafeTreeEntry) -> None:
    parent, name = paths.split_path(entry.path)
    own: dict[str, Any] = {"project": row.project, "task": row.task, "parent": parent, "name": name}
    if File.objects.filter(**own, size=entry.size).exclude(sha256="").exists():
        return
    with written.open(entry.path) as file:
        found = hashlib.file_digest(cast(Any, file), "sha256").hexdigest()
        get_store().put(Path(f"/proc/self/fd/{file.fileno()}"), make_key(row.project_id, entry.path, row.task))
    with claim.fenced():
        folders.ensure_folders(row.project, paths.list_parents(entry.path), None, row.task)
        values = {"size": entry.size, "sha256": found, "changed_at": now()}
        File.objects.update_or_create(**own, defaults=values)


def delete_outputs(project: str, task: str) -> None:
    """Delete a task's outputs: from the disk at once, from object storage soon."""
    for folder in (OUTPUTS_FOLDER, TREES_FOLDER):
        SafeTree(Path(settings.DATA_DIR, folder, task)).remove()
    with transaction.atomic():
        Outputs.objects.filter(pk=task).delete()
        rows = File.objects.filter(project=project, task=task)
        rows.filter(folder=True).delete()
        folders.schedule_deletion(rows, list(rows.values_list("pk", flat=True)))
        wakeups.enqueue_after_commit("files.sweep")


def is_stored(project: Project, task: str) -> bool:
    """Return True if the task's outputs are in object storage."""
    return Outputs.objects.filter(pk=task, project=project, stored=True).exists()
