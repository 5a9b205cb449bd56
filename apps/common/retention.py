"""Rows that have been kept long enough are deleted in batches, so that no statement holds a table for long."""

from typing import Any

from django.db.models import QuerySet

BATCH_ROWS = 500
MAX_BATCHES = 10


def delete_old(rows: QuerySet[Any, Any], max_batches: int = MAX_BATCHES) -> int:
    """Delete these rows, and what goes with them, in at most so many batches; the next call goes on. Return how many
    of these rows there were."""
    deleted = 0
    for _ in range(max_batches):
        keys = list(rows.values_list("pk", flat=True)[:BATCH_ROWS])
        deleted += rows.filter(pk__in=keys).delete()[1].get(rows.model._meta.label, 0) if keys else 0
        if len(keys) < BATCH_ROWS:
            break
    return deleted
