"""Stores the runs that a task's script begins at experiment trackers."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from django.conf import settings

from apps.common.clock import now
from apps.training.models import Task, TrackerRun
from apps.training.states import TaskState
from fermi.engines.safe_tree import SafeTree
from fermi.jobs.user_paths import OUTPUTS_FOLDER
from fermi.metrics import tracker_runs

MAX_RUNS = 100
"""Of a task; further ones are left out."""
MAX_NAMES = 2000
"""Entries of a folder that are read."""
SENT_FOLDER = "synced"
"""In the outputs of a task that sends runs (`services.wandb_sync`): one file for each that it has sent."""


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """A run, and who reported it."""

    source: str
    rank: int
    at: datetime
    run: tracker_runs.TrackerRun


def store_runs(task_id: str, attempt: int, found: Iterable[ReportedRun]) -> None:
    """Store runs, or what is new of them. Call it in the transaction that stores what was read of a log."""
    rows = {_build_key(row): row for row in TrackerRun.objects.filter(task=task_id)}
    for one in found:
        run, folder = one.run, one.run.folder if one.run.is_offline else ""
        row = TrackerRun(
            task_id=task_id, source=one.source, run_id=run.id, entity=run.entity, project=run.project, name=run.name,
            url=run.url, folder=folder, is_offline=run.is_offline, attempt=attempt, rank=one.rank, at=one.at,
        )  # fmt: skip
        known = rows.get(_build_key(row))
        if known:
            known.entity, known.name = run.entity or known.entity, run.name or known.name
            known.url = run.url or known.url
            known.attempt, known.at = attempt, one.at
        elif len(rows) < MAX_RUNS:
            rows[_build_key(row)] = known = row
        if known:
            known.save()


def _build_key(row: TrackerRun) -> tuple[str, str, str, str]:
    return row.source, row.project, row.run_id, row.folder


def find_own_run(runs: Iterable[TrackerRun]) -> TrackerRun | None:
    """Return the run that is the task's: of its newest attempt, of the lowest rank, the one that began first."""
    return min(runs, key=lambda row: (row.rank, row.run_id != row.task_id, -row.attempt, row.at), default=None)


def open_outputs(task_id: str) -> SafeTree:
    """Return the files in the outputs of a task; lists contain at most MAX_NAMES names."""
    return SafeTree(Path(settings.DATA_DIR) / OUTPUTS_FOLDER / task_id, MAX_NAMES)


def find_page(sync: Task, row: TrackerRun) -> str | None:
    """Return the address of a run's page, empty where that is not known, if a task has sent the run; else None. The
    task's outputs say which it has sent, also where it failed over another one."""
    try:
        with open_outputs(sync.pk).open(f"{SENT_FOLDER}/{row.folder.rpartition('/')[2]}") as file:
            return tracker_runs.parse_url(file.read(tracker_runs.MAX_URL_LENGTH).decode("ascii", "replace"))
    except (OSError, ValueError):
        return "" if sync.state == TaskState.SUCCEEDED else None


def keep_synced(sync: Task) -> None:
    """Note which runs a task has sent. Call it before the files of the task are deleted."""
    for row in TrackerRun.objects.filter(sync_task=sync, synced_at=None):
        if (page := find_page(sync, row)) is not None:
            row.synced_at, row.url = sync.ended_at or now(), page
            row.save(update_fields=["synced_at", "url"])
