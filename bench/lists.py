"""Lists, searches and pages over 1,000,000 ended tasks, requested by the administrator and by members of projects, on a
private PostgreSQL (without fsync, like that of the tests)."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import psycopg

from bench.table import Figure, FigureTarget
from bench.temp_platform import ROOT, build_environment, make_temp_folder, run_postgresql
from bench.timing import measure_seconds

TASKS, PROJECTS, ROUNDS = 1_000_000, 200, 5
MEMBERS = {"none": ["empty"], "1": ["p20"], "5": ["p1", "p10", "p50", "p100", "p199"],
           "200": [f"p{number}" for number in range(PROJECTS)]}  # fmt: skip
QUERIES = {
    "the newest": "",
    "the oldest": "ordering=createdAt",
    "failed": "status=failed",
    "a rare framework, failed": "framework=horovod&status=failed",
    "somebody's": "owner=user-3",
    "a project's": "project=p20",
    "of a week": "createdAfter={begins}&createdBefore={ends}",
    "page 100 of 50": "page=100&pageSize=50",
    "behind a cursor": "cursor={cursor}",
    "a name that few have": "search=run-4711-",
    "a name that all have": "search=run",
    "a name that nobody has": "search=nothing+like+it",
    "part of an id": "search=d3d94468",
    "by name": "ordering=name",
    "by start": "ordering=-startedAt",
    "by step": "ordering=-step",
}
CREATED_FROM = {
    "id": "'task-' || md5(n::text)",
    "name": "'run-' || n || '-' || substr(md5(n::text), 1, 6)",
    "project_id": f"'p' || floor({PROJECTS} * power((n::bigint * 7919 % 1000003) / 1000003.0, 2))",
    "owner_id": "(array(SELECT id FROM accounts_user ORDER BY id))[1 + n * 13 % 20]",
    "state": "(array['succeeded', 'succeeded', 'succeeded', 'failed', 'stopped'])[1 + n * 7 % 5]",
    "framework": "CASE WHEN n % 400 = 0 THEN 'horovod' ELSE (array['pytorch-ddp', 'deepspeed', 'jax'])[1 + n % 3] END",
    "created_at": "task.created_at - n * interval '1 minute'",
    "started_at": "CASE WHEN n % 20 > 0 THEN task.created_at - n * interval '1 minute' + interval '5 seconds' END",
    "ended_at": "task.created_at - n * interval '1 minute' + interval '2 hours'",
    "progress": "jsonb_build_object('step', n % 1000, 'loss', n * 13 % 1000 / 100.0)",
}


def measure() -> Iterator[Figure]:
    """Return the medians of the slowest user."""
    with make_temp_folder() as data, run_postgresql() as servers:
        command = [sys.executable, "-m", "bench.lists"]
        env = build_environment(data, **servers)
        found = json.loads(subprocess.run(command, env=env, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    yield Figure("making of 1,000,000 tasks", found.pop("made"), "s")
    for name, by_asker in found.items():
        asker, slowest = max(by_asker.items(), key=lambda one: one[1])
        yield Figure(f"{name} ({asker})", 1e3 * slowest, "ms", target=FigureTarget(50))


def _measure_inside() -> dict[str, Any]:
    import io
    from statistics import median

    from django.core.management import call_command
    from django.http import QueryDict

    from apps.accounts.models import Membership, Project, User
    from apps.common.request_shapes import parse_query
    from apps.training.api.serializers import TaskQuery
    from apps.training.presenters import task_list
    from bench.in_django import make_running_tasks

    call_command("firststart", stdout=io.StringIO())
    make_running_tasks(1)
    asking = {"administrator": User.objects.get()}
    Project.objects.bulk_create(Project(pk=name, name=name) for name in [*MEMBERS["200"], "empty"])
    User.objects.bulk_create(User(username=f"user-{number}") for number in range(20))
    for name, projects in MEMBERS.items():
        asking[f"member of {name}"] = user = User.objects.create(username=f"of-{name}")
        Membership.objects.bulk_create(Membership(user=user, project_id=project) for project in projects)
    found: dict[str, Any] = {"made": measure_seconds(_make_rows)}

    def query(text: str) -> dict[str, Any]:
        return parse_query(TaskQuery, QueryDict(text))

    whole = asking["administrator"]
    far = task_list.list_tasks(whole, query("page=200&pageSize=20"))
    begins, ends = (f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in _filter_week(far["items"][0]["createdAt"]))
    for name, text in QUERIES.items():
        asked = query(text.format(begins=begins, ends=ends, cursor=far["nextCursor"]))
        ask = {who: partial(task_list.list_tasks, user, asked) for who, user in asking.items()}
        found[name] = {who: median(measure_seconds(one) for _ in range(ROUNDS)) for who, one in ask.items()}
    return found


def _filter_week(ends: Any) -> tuple[Any, Any]:
    from datetime import timedelta

    return ends - timedelta(days=7), ends


def _make_rows() -> None:
    """Create rows first and indexes afterwards, on two cores, which takes a quarter of the time."""
    from django.db import connection

    from apps.training.models import Task

    names = [str(field.column) for field in Task._meta.concrete_fields]
    made = CREATED_FROM | {"due_at": "NULL", "claimed_at": "NULL"}
    values = ", ".join(made.get(name, f'task."{name}"') for name in names)
    columns = ", ".join(f'"{name}"' for name in names)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'training_task' "
            "AND indexdef NOT LIKE '%UNIQUE%' ORDER BY indexdef LIKE '%USING gin%' DESC"  # the longest first
        )
        indexes = cursor.fetchall()
        for name, _ in indexes:
            cursor.execute(f'DROP INDEX "{name}"')
        [first] = Task.objects.values_list("pk", flat=True)
        with ThreadPoolExecutor(2) as pool:
            rows = [
                f"INSERT INTO training_task ({columns}) SELECT {values} "
                f"FROM training_task AS task, generate_series({begins}, {TASKS}, 2) AS n WHERE task.id = '{first}'"
                for begins in (1, 2)
            ]
            list(pool.map(_execute, rows))
            list(pool.map(_execute, [definition for _, definition in indexes]))
        cursor.execute("VACUUM ANALYZE training_task")
        cursor.execute("ANALYZE accounts_membership")


def _execute(statement: str) -> None:
    """Execute statements on a connection and a core of its own."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        connection.execute("SET maintenance_work_mem = '512MB'; SET max_parallel_maintenance_workers = 0")
        connection.execute("SET session_replication_role = replica")  # rows refer to what is there: nobody looks
        connection.execute(statement)


if __name__ == "__main__":
    import django

    django.setup()
    print(json.dumps(_measure_inside()))
