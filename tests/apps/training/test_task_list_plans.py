"""How PostgreSQL finds a page of very many ended tasks: plans, not times, which depend on the machine."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from apps.accounts import access
from apps.accounts.models import Membership, Project, User
from apps.clusters.models import Cluster
from apps.common import cursors
from apps.common.clock import now
from apps.training.models import Task
from apps.training.presenters import task_list
from apps.training.states import TaskState

pytestmark = [
    pytest.mark.database,
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="the plans are PostgreSQL's"),
]

TASKS, PROJECTS = 50_000, 200
FEW = 1000
"""Rows that may be sorted: those that an index has found."""

MADE = {
    "id": "'task-' || md5(n::text)",
    "name": "'run-' || n || '-' || md5(n::text)",
    "project_id": f"'p' || n * 7919 % 1000003 % {PROJECTS}",
    "state": "(array['succeeded', 'failed', 'stopped'])[1 + n % 3]",
    "framework": "(array['pytorch-ddp', 'deepspeed', 'pytorch-ddp'])[1 + n * 31 % 3]",
    "created_at": "task.created_at - n * interval '1 minute'",
    "ended_at": "task.created_at - n * interval '1 minute'",
}
MEMBERS = {"one": ["p7"], "five": ["p1", "p20", "p50", "p100", "p199"], "nothing": ["empty"], "some": ["p3", "empty"],
           "many": [f"p{number}" for number in range(PROJECTS)]}  # fmt: skip
QUERIES: dict[str, dict[str, Any]] = {
    "the newest": {},
    "the oldest": {"ordering": ["created_at"]},
    "a page far behind": {"page": 20},
    "one state": {"status": ["failed"]},
    "a state that none is in": {"status": ["running"]},
    "a framework that nobody uses": {"framework": "jax"},
    "one project": {"project": "p7"},
    "somebody": {"owner": "admin"},
    "nobody": {"owner": "nobody"},
    "the last hours": {"createdAfter": now() - timedelta(hours=5)},
    "behind a cursor": {"cursor": now() - timedelta(hours=50)},
    "what is found": {"search": "run-4711-"},
    "what is not found": {"search": "no such name"},
    "what is found by a part of its id": {"search": "d3d94468"},
    "an environment": {"environment": "env-1"},
    "by name": {"ordering": ["name"]},
    "by name, of one state, backwards": {"ordering": ["-name"], "status": ["failed"]},
    "by size": {"ordering": ["world_size"]},
}


@pytest.fixture
def people() -> list[User]:
    """The administrator, who sees all of them, and members of some projects."""
    admin = User.objects.create(username="admin", is_superuser=True)
    members = [User.objects.create(username=name) for name in MEMBERS]
    names = [*(f"p{number}" for number in range(PROJECTS)), "empty"]
    Project.objects.bulk_create(Project(pk=name, name=name) for name in names)
    Membership.objects.bulk_create(
        Membership(user=user, project_id=key) for user in members for key in MEMBERS[user.username]
    )
    Task.objects.create(
        id="task-first", project_id="p0", owner=admin, name="first", framework="pytorch-ddp",
        cluster=Cluster.objects.create(name="c", backend="local"), node_count=1, total_gpus=2, world_size=2, master="e",
        request={}, spec={}, summary={}, state=TaskState.SUCCEEDED, state_since=now(), created_at=now(), ended_at=now(),
    )  # fmt: skip
    names = [field.column for field in Task._meta.concrete_fields]
    columns = ", ".join(f'"{name}"' for name in names)
    values = ", ".join(MADE.get(name, f'task."{name}"') for name in names)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO training_task ({columns}) "
            f"SELECT {values} FROM training_task AS task, generate_series(1, {TASKS}) AS n"
        )
        for index in ("training_task_name_search", "training_task_id_search"):
            cursor.execute("SELECT gin_clean_pending_list(%s)", [index])  # as VACUUM does, in no transaction
        cursor.execute("ANALYZE training_task")
        cursor.execute("ANALYZE accounts_membership")
    return [admin, *members]


def test_a_page_uses_an_index_without_sorting(people: list[User], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks, and whatever for."""
    monkeypatch.setattr(task_list, "MAX_LISTED", 100)  # to 50,000 rows this is what 5,000 are to a million
    wrong = {}
    for user in people:
        for name, query in QUERIES.items():
            steps = list(_steps(_page(user, query)))
            reads = [
                step for step in steps if "training_task" in f"{step.get('Relation Name')} {step.get('Index Name')}"
            ]
            assert reads, (user, name)
            sorts = [step["Plan Rows"] for step in steps if step["Node Type"] == "Sort"]
            if any(step["Node Type"] == "Seq Scan" for step in reads) or max(sorts, default=0) > FEW:
                wrong[user.username, name] = sorts, [step["Node Type"] for step in reads]
    assert not wrong


def _page(user: User, query: dict[str, Any]) -> Any:
    given = {name: value for name, value in query.items() if name not in ("ordering", "page", "status")}
    if "cursor" in given:
        given["cursor"] = cursors.build_cursor_condition(
            cursors.make_cursor({"created_at": given["cursor"], "id": "x"}, "-created_at", Task) or "",
            "-created_at",
            Task,
        )
    ordering = tuple(query.get("ordering", ["-created_at"]))
    shape = task_list.PageShape(
        tuple(query.get("status", ())), ordering, 20 * (query.get("page", 1) - 1), 20, counts=False
    )
    mine = access.read_changeable_projects(user)
    return task_list.query_page(None if mine is None else list(mine), shape, given)


def _steps(rows: Any) -> Iterator[dict[str, Any]]:
    yield from _below(json.loads(rows.explain(format="json"))[0]["Plan"])


def _below(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield step
    for one in step.get("Plans", []):
        yield from _below(one)
