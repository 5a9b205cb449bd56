"""Claims of many rows by several at once: each row is had by one of them, and nobody waits for somebody who waits."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from django.db import connection

from apps.common import pass_claims
from apps.common.clock import now
from apps.common.sql import AnyOf
from apps.training.models import Task

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

ROWS, THREADS, ROUNDS = 2000, 4, 6
SPAN = timedelta(minutes=5)


@pytest.fixture
def keys(task: Task) -> Iterator[list[str]]:
    """On disk in an order of its own."""
    made = [f"task-{number:04}" for number in range(ROWS)]
    values = {field.attname: getattr(task, field.attname) for field in Task._meta.concrete_fields} | {"due_at": now()}
    Task.objects.bulk_create(Task(**{**values, "id": key}) for key in random.sample(made, ROWS))
    yield made
    Task.objects.filter(AnyOf(made)).delete()


def test_each_row_is_claimed_once_and_becomes_due_again(keys: list[str]) -> None:
    together = Barrier(THREADS)

    def claims(count: int) -> set[str]:
        """By another path to the rows, where they are few."""
        try:
            mine = random.sample(keys, count)
            together.wait(60)
            claim = pass_claims.PassClaim(Task.objects.filter(AnyOf(mine)), SPAN)
            had = set(Task.objects.filter(claimed_at=claim.at).values_list("pk", flat=True))
            for some in (mine[::2], mine[1::2]):
                claim.release(Task.objects.filter(AnyOf(some)), len(some), now())
            return had
        finally:
            connection.close()

    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(ROUNDS):
            Task.objects.filter(AnyOf(keys)).update(due_at=now(), claimed_at=None)
            had = [asked.result() for asked in [pool.submit(claims, ROWS // (1 + number)) for number in range(THREADS)]]
            assert set().union(*had) == set(keys)
            assert not Task.objects.filter(AnyOf(keys)).exclude(claimed_at=None).exists()
            assert Task.objects.filter(AnyOf(keys), due_at__lte=now()).count() == ROWS
