"""Failures of a week, by cause and by node, compared with how often each node was used."""

import math
from collections.abc import Callable, Hashable, Iterable
from datetime import datetime, timedelta
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from django.db.models import Count

from apps.overview.scope import Scope
from apps.training.public import Attempt, get_failure_counts, summarize_causes

T = TypeVar("T")

MAX_CACHE_ENTRIES = 256
_lock = Lock()
_entries: dict[Hashable, tuple[float, Any]] = {}


WEEK = timedelta(days=7)
MAX_NODES = 20
STARTS_CACHE_SECONDS = 60.0
MAX_CHANCE = 0.05
"""Probability that any node would fail so often in a week in which all are alike: below it, the node is an outlier."""


class NodeRecord(NamedTuple):
    """Starts and failures of one node."""

    environment: str
    name: str
    starts: int
    failures: int


def summarize_failures(scope: Scope, moment: datetime) -> dict[str, Any]:
    """Return the failures of the last week."""
    since = moment - WEEK
    attempts = scope.filter_projects(Attempt.objects.all(), "task__project")
    return {
        "since": since,
        **summarize_causes(attempts, scope.tasks(), since),
        **_summarize_nodes(scope, moment),
    }


def _summarize_nodes(scope: Scope, moment: datetime) -> dict[str, Any]:
    """Return the nodes that were found at fault, the worst first."""
    blamed = get_failure_counts(moment)
    whose = "" if scope.all else scope.user.pk
    starts = get_or_compute(
        ("starts", whose, scope.project), STARTS_CACHE_SECONDS, lambda: _count_starts(scope, moment)
    )
    names = dict(scope.environments().filter(pk__in=list(blamed)).values_list("pk", "name"))
    records = [
        NodeRecord(key, names[key], max(starts.get(key, 0), count), count)
        for key, count in blamed.items()
        if key in names
    ]
    everywhere = sum(starts.values()) or 1
    rate = min(sum(one.failures for one in records) / everywhere, 1.0)
    out = find_outliers(records, rate, everywhere, len(starts))
    records.sort(key=lambda one: (one.environment not in out, -one.failures, one.starts, one.name))
    return {
        "starts": sum(starts.values()),
        "nodesBlamed": len(records),
        "nodes": [
            {
                "environmentId": one.environment,
                "name": one.name,
                "starts": one.starts,
                "failures": one.failures,
                "standsOut": one.environment in out,
            }
            for one in records[:MAX_NODES]
        ],
    }


def _count_starts(scope: Scope, moment: datetime) -> dict[str, int]:
    """Return the number of attempts by environment."""
    rows = scope.filter_projects(Attempt.objects.filter(created_at__gte=moment - WEEK), "task__project").order_by()
    started: Any = rows.filter(task__nodes__environment__isnull=False).values("task__nodes__environment")
    return dict(started.annotate(count=Count("pk")).values_list("task__nodes__environment", "count"))


def find_outliers(records: Iterable[NodeRecord], rate: float, everywhere: int, nodes: int) -> set[str]:
    """Return the nodes that fail more often than chance explains, if each start failed with the probability that it has
    on the other nodes. Of many nodes, one may well fail often by chance. A single failure is always chance."""
    found = set()
    for one in records:
        rest = max(everywhere - one.starts, 1)
        others = max(rate * everywhere - one.failures, 1.0) / rest
        if one.failures > 1 and _compute_tail(one.failures, one.starts * min(others, 1.0)) < MAX_CHANCE / max(nodes, 1):
            found.add(one.environment)
    return found


def _compute_tail(count: int, mean: float) -> float:
    """Return the probability of `count` events or more where `mean` are expected (Poisson)."""
    below = sum(math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in range(count)) if mean else 1.0
    return max(1.0 - below, 0.0)


def get_or_compute(key: Hashable, seconds: float, make: Callable[[], T]) -> T:
    """Return what `make` returned for `key` at most `seconds` ago, or call it."""
    with _lock:
        since, value = _entries.get(key, (0.0, None))
        if since and monotonic() - since < seconds:
            found: T = value
            return found
    made = make()
    with _lock:
        if len(_entries) >= MAX_CACHE_ENTRIES:
            _entries.clear()
        _entries[key] = monotonic(), made
    return made


def clear_cache() -> None:
    with _lock:
        _entries.clear()
