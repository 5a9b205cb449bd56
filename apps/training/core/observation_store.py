"""Stores the last observation of an attempt for the page's rank grid, and a short digest of it, by which a pass over
many attempts finds those that changed."""

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import datetime
from functools import partial
from hashlib import blake2b
from operator import attrgetter
from typing import Any

import orjson
from django.db import connection, transaction

from apps.common.wakeups import tell
from apps.training.models import Attempt, Task
from fermi.jobs.spec import Observation, RankSeen

ALWAYS = frozenset({"rank", "node_rank", "state", "pid", "exit_code"})
"""Rank fields that are always stored; others are stored only if they have a value."""
_REMEMBER = f"UPDATE {Attempt._meta.db_table} SET seen = %s, seen_mark = %s WHERE id = %s"
_FENCED = f" AND EXISTS (SELECT 1 FROM {Task._meta.db_table} task WHERE task.id = task_id AND task.claimed_at = %s)"
_NAMES = [field.name for field in fields(RankSeen)]
_values: Callable[[RankSeen], tuple[Any, ...]] = attrgetter(*_NAMES)


def remember(news: Sequence[tuple[Attempt, Observation]], claimed_at: datetime | None = None) -> None:
    """Store the observations of attempts in one batch, and publish a status change for each task. `claimed_at`: store
    only those whose task is still claimed by this pass."""
    if not news:
        return
    for attempt, seen in news:
        attempt.seen, attempt.seen_mark = stored(seen), mark(seen)
    rows = sorted((attempt.pk, _encoded(attempt.seen).decode(), attempt.seen_mark) for attempt, _ in news)
    fence = [connection.ops.adapt_datetimefield_value(claimed_at)] if claimed_at else []
    values = [(seen, short, pk, *fence) for pk, seen, short in rows]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(_REMEMBER + (_FENCED if fence else ""), values)
        for attempt, _ in news:
            transaction.on_commit(partial(tell, f"task:{attempt.task_id}", {"kind": "status"}))


def mark(seen: Observation) -> str:
    """Return the digest of an observation: 24 hexadecimal digits."""
    told = (seen.phase, seen.left, list(map(_values, seen.ranks)), *_causes(seen))
    return blake2b(_encoded(told), digest_size=12).hexdigest()


def stored(seen: Observation) -> dict[str, Any]:
    """Return the observation as JSON values, as `Attempt.seen` stores it."""
    cause, waiting = _causes(seen)
    ranks = [
        {
            name: value
            for name, value in zip(_NAMES, _values(rank), strict=True)
            if (value is not None and value is not False) or name in ALWAYS
        }
        for rank in seen.ranks
    ]
    return {"phase": seen.phase, "left": seen.left, "ranks": ranks, "cause": cause, "waiting": waiting}


def _causes(seen: Observation) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    return seen.cause.to_json() if seen.cause else None, seen.waiting.to_json() if seen.waiting else None


def _encoded(told: Any) -> bytes:
    """Return the value as JSON bytes. What orjson rejects (integers of many digits, lone surrogates) is written by
    Python's json."""
    try:
        return orjson.dumps(told, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return json.dumps(told, sort_keys=True).encode()
