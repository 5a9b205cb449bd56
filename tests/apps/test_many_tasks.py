"""How PostgreSQL finds a page of very many ended tasks: plans, not times, which depend on the machine."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from apps.accounts.models import Project, User
from apps.clusters.models import Cluster
from apps.common.clock import now
from apps.training.models import Task
from apps.training.shown import selectors
from apps.training.states import State

pytestmark = [
    pytest.mark.storage,
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="the plans are PostgreSQL's"),
]

TASKS = 50_000
FEW = 500
"""Rows that may be sorted: those that an index has found."""

MADE = {
    "id": "'task-' || md5(n::text)",
    "name": "'run-' || n || '-' || md5(n::text)",
    "state": "(array['succeeded', 'failed', 'stopped'])[1 + n % 3]",
    "created_at": "task.created_at - n * interval '1 minute'",
    "ended_at": "task.created_at - n * interval '1 minute'",
}


@pytest.fixture
def admin() -> User:
    """Who sees all of them."""
    user = User.objects.create(username="admin", is_superuser=True)
    Task.objects.create(
        id="task-first", project=Project.objects.create(name="p"), owner=user, name="first", framework="pytorch-ddp",
        cluster=Cluster.objects.create(name="c", backend="local"), node_count=1, total_gpus=2, world_size=2, master="e",
        request={}, spec={}, summary={}, state=State.SUCCEEDED, state_since=now(), created_at=now(), ended_at=now(),
    )  # fmt: skip
    names = [field.column for field in Task._meta.concrete_fields]
    columns = ", ".join(f'"{name}"' for name in names)
    values = ", ".join(MADE.get(name, f'task."{name}"') for name in names)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO training_task ({columns}) "
            f"SELECT {values} FROM training_task AS task, generate_series(1, {TASKS}) AS n"
        )
        cursor.execute("ANALYZE training_task")
    return user


QUERIES: dict[str, dict[str, Any]] = {
    "the newest": {},
    "one state": {"status": ["failed"]},
    "one project": {"project": "p"},
    "what is found": {"search": "run-4711-"},
    "what is not found": {"search": "no such name"},
    "what is found by a part of its id": {"search": "d3d94468"},
    "by name": {"ordering": ["name"]},
    "by name, backwards": {"ordering": ["-name"]},
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_a_page_reads_an_index_and_neither_all_rows_nor_sorts_them(admin: User, query: dict[str, Any]) -> None:
    query = {"ordering": ["-created_at"], **query}
    if "project" in query:
        query["project"] = Project.objects.get().pk
    steps = list(_steps(selectors.tasks(admin, query).order_by(*query["ordering"], "pk")[:20]))

    reads = [step for step in steps if step.get("Relation Name") == "training_task"]
    assert reads
    assert not [step for step in reads if step["Node Type"] == "Seq Scan"]
    assert not [step for step in steps if step["Node Type"] == "Sort" and step["Plan Rows"] > FEW]


def _steps(rows: Any) -> Iterator[dict[str, Any]]:
    yield from _below(json.loads(rows.explain(format="json"))[0]["Plan"])


def _below(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield step
    for one in step.get("Plans", []):
        yield from _below(one)
