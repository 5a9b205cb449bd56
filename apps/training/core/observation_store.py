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

from apps.common.wakeups import publish_soon
from apps.training.models import Attempt, Task
from fermi.jobs.spec import Observation, RankStatus

ALWAYS_STORED_FIELDS = frozenset({"rank", "node_rank", "state", "pid", "exit_code"})
"""Rank fields that are always stored; others are stored only if they have a value."""
_UPDATE_SEEN = f"UPDATE {Attempt._meta.db_table} SET seen = %s, seen_mark = %s WHERE id = %s"
_CLAIM_CONDITION = (
    f" AND EXISTS (SELECT 1 FROM {Task._meta.db_table} task WHERE task.id = task_id AND task.claimed_at = %s)"
)
_RANK_FIELDS = [field.name for field in fields(RankStatus)]
_get_rank_values: Callable[[RankStatus], tuple[Any, ...]] = attrgetter(*_RANK_FIELDS)


def store_observations(observations: Sequence[tuple[Attempt, Observation]], claimed_at: datetime | None = None) -> None:
    """Store the observations of attempts in one batch, and publish a status change for each task. `claimed_at`: store
    only those whose task is still claimed by this pass."""
    if not observations:
        return
    for attempt, seen in observations:
        attempt.seen, attempt.seen_mark = serialize_observation(seen), compute_digest(seen)
    rows = sorted((attempt.pk, _encode(attempt.seen).decode(), attempt.seen_mark) for attempt, _ in observations)
    fence = [connection.ops.adapt_datetimefield_value(claimed_at)] if claimed_at else []
    values = [(seen, short, pk, *fence) for pk, seen, short in rows]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(_UPDATE_SEEN + (_CLAIM_CONDITION if fence else ""), values)
        for attempt, _ in observations:
            transaction.on_commit(partial(publish_soon, f"task:{attempt.task_id}", {"kind": "status"}))


def compute_digest(observation: Observation) -> str:
    """Return the digest of an observation: 24 hexadecimal digits."""
    told = (
        observation.phase,
        observation.left,
        list(map(_get_rank_values, observation.ranks)),
        *_serialize_causes(observation),
    )
    return blake2b(_encode(told), digest_size=12).hexdigest()


def serialize_observation(observation: Observation) -> dict[str, Any]:
    """Return the observation as JSON values, as `Attempt.seen` stores it."""
    cause, waiting = _serialize_causes(observation)
    ranks = [
        {
            name: value
            for name, value in zip(_RANK_FIELDS, _get_rank_values(rank), strict=True)
            if (value is not None and value is not False) or name in ALWAYS_STORED_FIELDS
        }
        for rank in observation.ranks
    ]
    return {"phase": observation.phase, "left": observation.left, "ranks": ranks, "cause": cause, "waiting": waiting}


def _serialize_causes(observation: Observation) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    return (
        observation.cause.to_json() if observation.cause else None,
        observation.waiting.to_json() if observation.waiting else None,
    )


def _encode(value: Any) -> bytes:
    """Return the value as JSON bytes. What orjson rejects (integers of many digits, lone surrogates) is written by
    Python's json."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return json.dumps(value, sort_keys=True).encode()
