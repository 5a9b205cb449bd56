"""Reads lines for people into points: the expressions that find candidates, compiled by RE2, and the patterns of a task
(`LogPattern`). Points are stored as they were printed; `core.log_patterns` applies what users changed when they are
read.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from apps.training.core.findings import read_rules_text
from apps.training.models import LogPattern
from fermi.metrics.known_patterns import DeclaredPattern, parse_declared_patterns
from fermi.metrics.text_patterns import CANDIDATE, ROWS, FoundPattern, KnownPattern, Learner
from fermi.schema import sanitize

MAX_PATTERNS = 64
"""Most patterns of a task. Points of further ones are stored as they are printed."""


@cache
def _compile_expressions() -> tuple[Any, Any]:
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(CANDIDATE, options), re2.compile(ROWS, options)


def build_learner(state: dict[str, Any], known: Sequence[KnownPattern] = ()) -> Learner:
    """Return the learner of a rank's log, which keeps what it knows in `state`."""
    plain, rows = _compile_expressions()
    return Learner(state, known, plain, rows)


def load_declared_patterns(project_id: str) -> Sequence[DeclaredPattern]:
    """Return the lines that the project declares as points of curves."""
    text = read_rules_text(project_id)
    return parse_declared_patterns(text) if text else ()


def store_patterns(task_id: str, found: Iterable[FoundPattern]) -> None:
    """Store new patterns; of one that the task has already nothing changes."""
    rows = [
        LogPattern(
            task_id=task_id,
            key=one.key,
            line=sanitize.sanitize_text(one.template),
            example=sanitize.sanitize_text(one.example),
            fields={name: {"name": name, "unit": unit} for name, unit in one.units.items()},
        )
        for one in found
    ]
    if rows and LogPattern.objects.filter(task_id=task_id).count() + len(rows) <= MAX_PATTERNS:
        LogPattern.objects.bulk_create(rows, ignore_conflicts=True)
