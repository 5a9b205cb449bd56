"""Estimates how long tasks will hold their environments, from similar tasks in the past."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from django.db.models import F, Sum

from apps.training.models import Task
from apps.training.states import TaskKind, TaskState

HISTORY_WINDOW = timedelta(days=90)
MAX_HISTORY_TASKS = 2000
"""Most tasks that are read: the newest that succeeded."""
MIN_SIMILAR_TASKS = 3
"""Tasks with another name count as similar only if there are at least so many."""

SIMILARITY_COLUMNS = ("owner_id", "framework", "model_id", "name")
"""Columns by which tasks are similar: those that share all of them, then those that share the first three."""


@dataclass(frozen=True, slots=True)
class RuntimeHistory:
    """Past run times. `runs`: for how many seconds tasks held environments, shortest first, by what they have in
    common."""

    runs: Mapping[tuple[Any, ...], Sequence[float]] = field(default_factory=dict)

    def left(self, row: Mapping[str, Any], held: float = 0.0) -> float | None:
        """Return how many more seconds a task will hold environments that has done so for `held` seconds: the median of
        similar tasks that took longer. None: there is no similar task."""
        key = tuple(row[name] for name in SIMILARITY_COLUMNS)
        for alike, enough in ((key, 1), (key[:-1], MIN_SIMILAR_TASKS)):
            known = self.runs.get(alike, ())
            longer = known[bisect_right(known, held) :]
            if len(known) >= enough and longer:
                return median(longer) - held
        return None


def build_history(rows: Iterable[tuple[tuple[Any, ...], timedelta]]) -> RuntimeHistory:
    """Return the history from rows of similarity columns and durations."""
    found: defaultdict[tuple[Any, ...], list[float]] = defaultdict(list)
    for key, took in rows:
        found[key].append(took.total_seconds())
        found[key[:-1]].append(took.total_seconds())
    return RuntimeHistory({key: sorted(runs) for key, runs in found.items()})


def load_history(now: datetime) -> RuntimeHistory:
    """Return the history of tasks that succeeded within HISTORY_WINDOW, in one query. Tasks that failed or were stopped
    say nothing about others."""
    newest = Task.objects.filter(
        kind=TaskKind.TRAINING,
        state=TaskState.SUCCEEDED,
        ended_at__gte=now - HISTORY_WINDOW,
        attempts__ended_at__isnull=False,
    ).order_by("-ended_at")
    took = Sum(F("attempts__ended_at") - F("attempts__created_at"))
    rows = newest.annotate(took=took).values_list(*SIMILARITY_COLUMNS, "took")[:MAX_HISTORY_TASKS]
    return build_history((row[:-1], row[-1]) for row in rows)
