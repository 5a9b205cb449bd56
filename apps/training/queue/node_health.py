"""Counts how often an environment has failed recently; the scheduler prefers the others."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from apps.training.models import Attempt, Node, Preflight

FAILURE_WINDOW = timedelta(days=7)
CACHE_SECONDS = 60.0  # seconds
NODE_FAILURE_OUTCOMES = frozenset({"NODE_LOST", "NODES_MISSING", "RUNNER_LOST", "NETWORK_CUT", "MASTER_UNREACHABLE"})
"""Outcomes that name the node where they began; failures of a script say nothing about its nodes."""

_cached_failures: tuple[float, Mapping[str, int]] = (0.0, {})


def get_failure_counts(now: datetime) -> Mapping[str, int]:
    """Return the recent failures by environment id, from a cache of CACHE_SECONDS."""
    global _cached_failures
    since, found = _cached_failures
    if not since or monotonic() - since > CACHE_SECONDS:
        found = count_failures(now)
        _cached_failures = (monotonic(), found)
    return found


def count_failures(now: datetime) -> Mapping[str, int]:
    """Return the failures within FAILURE_WINDOW by environment id, from pre-flight tests and attempts."""
    found: Counter[str] = Counter()
    tests = Preflight.objects.filter(run__ended_at__gte=now - FAILURE_WINDOW)
    for report in tests.values_list("report", flat=True):
        for one in report.get("verdict", {}).get("culprits", ()):
            found.update(one["nodes"] if one["level"] == "fail" else ())
    named: Counter[tuple[str, str]] = Counter()
    ended = Attempt.objects.filter(ended_at__gte=now - FAILURE_WINDOW, outcome__in=NODE_FAILURE_OUTCOMES)
    for task, params in ended.values_list("task_id", "outcome_params"):
        named.update((task, name) for name in _parse_node_names(params))
    rows = Node.objects.filter(task__in={task for task, _ in named}, environment__isnull=False)
    for task, name, environment in rows.values_list("task_id", "name", "environment_id"):
        if count := named.get((task, name)):
            found[str(environment)] += count
    return found


def _parse_node_names(params: Mapping[str, Any]) -> Iterable[str]:
    said = params.get("node") or params.get("nodes") or ""
    return [name.strip() for name in said.split(",")] if isinstance(said, str) else [str(name) for name in said]
