"""How often an environment has failed of late: who chooses takes others first."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from apps.training.models import Attempt, Node, Preflight

LATELY = timedelta(days=7)
KNOWN_FOR = 60.0  # seconds
BLAMED = frozenset({"NODE_LOST", "NODES_MISSING", "RUNNER_LOST", "NETWORK_CUT", "MASTER_UNREACHABLE"})
"""Ends of attempts that name the node where they began; what a script does is nobody's fault but its own."""

_known: tuple[float, Mapping[str, int]] = (0.0, {})


def failures(now: datetime) -> Mapping[str, int]:
    """By environment id. Remembered for a minute: it is no matter of seconds."""
    global _known
    since, found = _known
    if not since or monotonic() - since > KNOWN_FOR:
        found = look(now)
        _known = (monotonic(), found)
    return found


def look(now: datetime) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    tests = Preflight.objects.filter(run__ended_at__gte=now - LATELY)
    for report in tests.values_list("report", flat=True):
        for one in report.get("verdict", {}).get("culprits", ()):
            found.update(one["nodes"] if one["level"] == "fail" else ())
    named: Counter[tuple[str, str]] = Counter()
    ended = Attempt.objects.filter(ended_at__gte=now - LATELY, outcome__in=BLAMED)
    for task, params in ended.values_list("task_id", "outcome_params"):
        named.update((task, name) for name in _names(params))
    rows = Node.objects.filter(task__in={task for task, _ in named}, environment__isnull=False)
    for task, name, environment in rows.values_list("task_id", "name", "environment_id"):
        if count := named.get((task, name)):
            found[str(environment)] += count
    return found


def _names(params: Mapping[str, Any]) -> Iterable[str]:
    said = params.get("node") or params.get("nodes") or ""
    return [name.strip() for name in said.split(",")] if isinstance(said, str) else [str(name) for name in said]
