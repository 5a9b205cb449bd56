"""A million tasks with what the table of runs reads of them, made by SQL. Imported inside Django."""

import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import psycopg
from django.core.management import call_command
from django.db import connection

from apps.accounts.models import Membership, Project, User
from apps.runs.models import Run, RunTag
from apps.training.models import MetricSummary, Task, TaskParameter
from bench.in_django import make_running_tasks

OWNERS = 20
_NOISE = "(n * 7919 % 1000003) / 1000003.0"
"""A number from 0 to 1 that looks random."""
_OTHER_NOISE = "(n * 104729 % 999983) / 999983.0"
TASK_COLUMNS = {
    "id": "{id}",
    "name": "'run-' || n || '-' || (n * 31 % 1000)",
    "project_id": "'p' || ((n * 7919 % 14142) * (n * 7919 % 14142) / 1000000)",
    "owner_id": "(SELECT MIN(id) FROM accounts_user WHERE username LIKE 'user-%%') + n * 13 %% {owners}",
    "state": "CASE n * 7 %% 5 WHEN 3 THEN 'failed' WHEN 4 THEN 'stopped' ELSE 'succeeded' END",
    "framework": "CASE WHEN n %% 400 = 0 THEN 'horovod' WHEN n %% 3 = 0 THEN 'jax' WHEN n %% 3 = 1 THEN 'deepspeed' "
    "ELSE 'pytorch-ddp' END",
    "created_at": "{created}",
    "started_at": "CASE WHEN n %% 20 > 0 THEN {created} END",
    "ended_at": "{ended}",
    "due_at": "NULL",
    "claimed_at": "NULL",
}
"""What differs between tasks; everything else is that of one task."""
PARAMETERS = {
    "lr": "CASE n %% 5 WHEN 0 THEN 0.1 WHEN 1 THEN 0.01 WHEN 2 THEN 0.001 WHEN 3 THEN 0.0001 ELSE 0.03 END",
    "batch": "8 * (1 + n %% 6)",
    "seed": "n",
    "epochs": "n %% 50",
    "dropout": "(n %% 7) / 10.0",
    "model.depth": "n %% 24",
    "warmup": "n * 17 %% 1000",
}
CURVES = {
    "val_loss": f"10 * {_NOISE}",
    "train_loss": f"9 * {_OTHER_NOISE}",
    "acc": f"1.0 - {_NOISE} * {_OTHER_NOISE}",
    "tokens_per_second": f"50000 * {_OTHER_NOISE}",
}
_SUMMARY = "(task_id, name, count, last, last_step, low, low_step, high, high_step)"


def make_seed(tasks: int, projects: int, members: Mapping[str, Sequence[str]]) -> None:
    """Create the rows first and the indexes afterwards."""
    call_command("firststart", stdout=io.StringIO())
    make_running_tasks(1)
    Project.objects.bulk_create(Project(pk=f"p{number}", name=f"p{number}") for number in range(projects))
    Project.objects.create(pk="empty", name="empty")
    User.objects.bulk_create(User(username=f"user-{number}") for number in range(OWNERS))
    for name, each in members.items():
        user = User.objects.create(username=f"of-{name}")
        Membership.objects.bulk_create(Membership(user=user, project_id=project) for project in each)
    if connection.vendor == "postgresql":
        _fill_postgresql(tasks)
    else:
        _fill_sqlite(tasks)


def list_askers(members: Mapping[str, Sequence[str]]) -> dict[str, User]:
    """Return who asks: an administrator, and members of some projects."""
    found = {"administrator": User.objects.get(is_superuser=True)}
    return found | {f"member of {name}": User.objects.get(username=f"of-{name}") for name in members}


def _list_inserts(tasks: int, numbers: str, words: Mapping[str, str]) -> Iterator[tuple[type, str]]:
    """Yield a statement for each kind of row, with the model. `numbers`: a table of the numbers n."""
    [first] = Task.objects.values_list("pk", flat=True)
    names = [str(field.column) for field in Task._meta.concrete_fields]
    values = [TASK_COLUMNS.get(name, f'task."{name}"').format(**words).replace("%%", "%") for name in names]
    columns = ", ".join(f'"{name}"' for name in names)
    yield (
        Task,
        (
            f"INSERT INTO training_task ({columns}) SELECT {', '.join(values)} "
            f"FROM {numbers.format(first=1, last=tasks)} AS numbers, training_task AS task WHERE task.id = '{first}'"
        ),
    )
    some = numbers.format(first=1, last=tasks)
    key = words["id"]
    parameter = "INSERT INTO training_taskparameter (task_id, name, value, number, source)"
    for name, value in PARAMETERS.items():
        value = value.replace("%%", "%")
        yield TaskParameter, f"{parameter} SELECT {key}, '{name}', {value}, {value}, 'request' FROM {some} AS numbers"
    text = "CASE n % 3 WHEN 0 THEN 'adam' WHEN 1 THEN 'sgd' ELSE 'lion' END"
    yield TaskParameter, f"{parameter} SELECT {key}, 'optimizer', {text}, NULL, 'request' FROM {some} AS numbers"
    yield (
        TaskParameter,
        f"{parameter} SELECT {key}, 'rare', '1', 1, 'request' FROM {some} AS numbers WHERE n % 20000 = 0",
    )
    for name, value in CURVES.items():
        figures = f"900, {value}, 1000, {value} * 0.9, 900, {value} + 2, 1"
        yield (
            MetricSummary,
            (f"INSERT INTO training_metricsummary {_SUMMARY} SELECT {key}, '{name}', {figures} FROM {some} AS numbers"),
        )
    yield (
        MetricSummary,
        (
            f"INSERT INTO training_metricsummary {_SUMMARY} SELECT {key}, 'rare_score', 1, n, 1, n, 1, n, 1 "
            f"FROM {some} AS numbers WHERE n % 10000 = 0"
        ),
    )
    tag = "INSERT INTO runs_runtag (task_id, name)"
    for name, every in {"baseline": 10, "paper": 20_000, "v2": 7}.items():
        yield RunTag, f"{tag} SELECT {key}, '{name}' FROM {some} AS numbers WHERE n % {every} = 0"
    yield (
        Run,
        (
            f"INSERT INTO runs_run (task_id, note, gpu_hours, cost, goodput, archived_at) "
            f"SELECT {key}, '', 200 * {_NOISE}, 400 * {_NOISE}, {_OTHER_NOISE}, "
            f"CASE WHEN n % 1000 = 1 THEN {words['created']} END FROM {some} AS numbers WHERE n % 10 > 0"
        ),
    )


def _fill_postgresql(tasks: int) -> None:
    words = {
        "id": "'task-' || substr(md5(n::text), 1, 12)",
        "created": "TIMESTAMPTZ '2026-11-01 00:00:00+00' - n * interval '1 minute'",
        "ended": "TIMESTAMPTZ '2026-11-01 00:00:00+00' - n * interval '1 minute' + interval '2 hours'",
        "owners": str(OWNERS),
    }
    inserts: dict[str, list[str]] = {}
    for model, statement in _list_inserts(
        tasks, "(SELECT n::bigint AS n FROM generate_series({first}, {last}) n)", words
    ):
        inserts.setdefault(model._meta.db_table, []).append(statement)  # type: ignore[attr-defined]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = ANY(%s) AND indexdef NOT LIKE '%%UNIQUE%%'",
            [list(inserts)],
        )
        indexes = cursor.fetchall()
        for name, _ in indexes:
            cursor.execute(f'DROP INDEX "{name}"')
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(_execute_all, inserts.values()))
        list(pool.map(_execute, [definition for _, definition in indexes]))
    with connection.cursor() as cursor:
        for table in inserts:
            cursor.execute(f"VACUUM ANALYZE {table}")


def _execute_all(statements: Iterable[str]) -> None:
    for statement in statements:
        _execute(statement)


def _execute(statement: str) -> None:
    """Execute a statement on a connection and a core of its own."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as other:
        other.execute("SET maintenance_work_mem = '512MB'; SET max_parallel_maintenance_workers = 0")
        other.execute("SET session_replication_role = replica")  # rows refer to what is there: nobody looks
        other.execute(statement)


def _fill_sqlite(tasks: int) -> None:
    moment = "strftime('%Y-%m-%d %H:%M:%f', '2026-11-01', '-' || {n} || ' minutes')"
    words = {
        "id": "'task-' || substr(MD5(CAST(n AS TEXT)), 1, 12)",
        "created": moment.format(n="n"),
        "ended": moment.format(n="(n - 120)"),
        "owners": str(OWNERS),
    }
    numbers = (
        "(WITH RECURSIVE counted(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM counted WHERE n < {last}) "
        "SELECT n FROM counted)"
    )
    statements = list(_list_inserts(tasks, numbers, words))
    with connection.cursor() as cursor:
        tables = sorted({model._meta.db_table for model, _ in statements})  # type: ignore[attr-defined]
        marks = ", ".join(["%s"] * len(tables))
        cursor.execute(
            f"SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name IN ({marks}) "
            "AND sql NOT LIKE '%%UNIQUE%%'",
            tables,
        )
        indexes = cursor.fetchall()
        for name, _ in indexes:
            cursor.execute(f'DROP INDEX "{name}"')
        cursor.execute("PRAGMA foreign_keys = OFF")
        cursor.execute("PRAGMA synchronous = OFF")
        cursor.execute("PRAGMA cache_size = -1000000")
        for _, statement in statements:
            cursor.execute(statement.replace("n::bigint", "n"))
        for _, definition in indexes:
            cursor.execute(definition)
        cursor.execute("ANALYZE")
