"""Summarizes the curves of tasks that ended before the platform kept summaries (`MetricSummary`), the newest first, a
few at a time: each means reading all of its points."""

import logging
from datetime import datetime

from django.db.models import Exists, OuterRef

from apps.common.clock import now
from apps.runs import walks
from apps.training.public import FINAL_STATES, MetricSummary, Task, TaskKind, rebuild_summaries

log = logging.getLogger(__name__)

WALK = "summaries"
BATCH_SIZE = 20
ROUND_SECONDS = 20.0


def summarize_older_tasks() -> int:
    """Summarize further tasks; return how many were passed. Of tasks that run, the reader of their logs does it."""
    return walks.walk_tasks(WALK, now(), _find_older, _summarize, _get_creation, seconds=ROUND_SECONDS)


def _find_older(place: walks.Step) -> list[Task]:
    rows = walks.select_behind(Task.objects.filter(kind=TaskKind.TRAINING), "created_at", place, descends=True)
    summaries = MetricSummary.objects.filter(task=OuterRef("pk"))
    return list(rows.only("created_at", "state").annotate(has_summaries=Exists(summaries))[:BATCH_SIZE])


def _summarize(tasks: list[Task]) -> None:
    for task in tasks:
        if task.state in FINAL_STATES and not task.has_summaries:  # type: ignore[attr-defined]
            try:
                rebuild_summaries(task.pk)
            except Exception:
                log.exception("the curves of %s stay without summaries", task.pk)


def _get_creation(task: Task) -> datetime:
    return task.created_at
