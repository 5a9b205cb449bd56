"""Curves of 50 runs with 100,000 points each, as the page that compares runs requests them, on SQLite and on a private
PostgreSQL (without fsync, like that of the tests)."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from bench.table import Figure, FigureTarget
from bench.temp_platform import ROOT, build_environment, make_temp_folder, prepare_database, run_postgresql
from bench.timing import measure_seconds

RUNS, POINTS = int(os.environ.get("BENCH_CURVES", "50")), 100_000
ROUNDS = 5


def measure() -> Iterator[Figure]:
    """Return the medians for both databases."""
    for name in ("SQLite", "PostgreSQL"):
        found = _measure_on(name)
        yield Figure(f"{name}: copying {RUNS * POINTS / 1e6:g} million points ahead", found["ahead"], "s")
        yield Figure(f"{name}: the first answer of a process", found["first"], "ms")
        yield Figure(f"{name}: {RUNS} whole curves", found["whole"], "ms", target=FigureTarget(300))
        yield Figure(f"{name}: {RUNS} curves, a tenth of the steps", found["zoom"], "ms", target=FigureTarget(200))
        yield Figure(f"{name}: {RUNS} curves by time, in bands", found["bands"], "ms")
        yield Figure(f"{name}: bytes of the answer", found["bytes"] / 1e6, "MB")
        yield Figure(f"{name}: blocks, bytes a point", found["stored"] / (RUNS * POINTS), "B")


def _measure_on(name: str) -> dict[str, Any]:
    with make_temp_folder() as data:
        if name == "SQLite":
            prepare_database(data)
            return _run_inside(build_environment(data))
        with run_postgresql() as servers:
            return _run_inside(build_environment(data, **servers))


def _run_inside(env: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.curves"]
    found: dict[str, Any] = json.loads(
        subprocess.run(command, env=env, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1]
    )
    return found


def _measure_inside() -> dict[str, Any]:
    import io
    from statistics import median

    from django.core.management import call_command
    from django.db.models import Sum
    from django.db.models.functions import Length
    from django.test import Client

    from apps.accounts.models import ApiToken, User
    from apps.runs import curve_copies
    from apps.training.models import MetricBlock

    call_command("firststart", stdout=io.StringIO())
    user = User.objects.get()
    ids = _make_tasks()
    _, token = ApiToken.objects.create(user=user, expiry=None, name="bench")
    client, headers = Client(SERVER_NAME="localhost"), {"Authorization": f"Bearer {token}"}
    answers: list[bytes] = []

    def read(**query: Any) -> bytes:
        params = {"task": ids, "metric": "loss", **query}
        answer = client.get("/api/v1/runs/series", params, headers=headers)
        answers[:] = [answer.content]
        return answer.content

    def copy_all() -> None:
        while curve_copies.copy_curves():
            pass

    found: dict[str, Any] = {"ahead": measure_seconds(copy_all), "first": 1e3 * measure_seconds(read)}
    assert json.loads(answers[0])["data"]["complete"]
    tenth = {"from": POINTS // 2 * 10, "to": POINTS // 2 * 10 + POINTS}
    for name, query in (("bands", {"axis": "relativeTime", "groupBy": "lr"}), ("zoom", tenth), ("whole", {})):
        found[name] = 1e3 * median(measure_seconds(lambda query=query: read(**query)) for _ in range(ROUNDS))  # type: ignore[misc]
    found["bytes"] = len(answers[0])
    sizes = MetricBlock.objects.filter(name="loss").aggregate(size=Sum(Length("data") + Length("cells")))
    return found | {"stored": sizes["size"]}


def _make_tasks() -> list[str]:
    """Create ended tasks with points of two kinds, 100 steps apart, and return their ids."""
    from datetime import timedelta

    from django.db import connection
    from django.utils.dateparse import parse_datetime

    from apps.common.clock import now
    from apps.training.models import Task, TaskParameter
    from bench.in_django import make_running_tasks

    make_running_tasks(RUNS)
    ids = list(Task.objects.order_by("pk").values_list("pk", flat=True))
    Task.objects.update(
        state="succeeded",
        due_at=None,
        started_at=parse_datetime("2026-11-01T00:00:00Z"),
        ended_at=now() - timedelta(hours=1),
    )
    TaskParameter.objects.bulk_create(
        TaskParameter(task_id=task, name="lr", value=str(at % 5), number=at % 5, source="request")
        for at, task in enumerate(ids)
    )
    if connection.vendor == "sqlite":
        series, noise = f"WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < {POINTS - 1})", (
            "abs(random()) % 1000000 / 1e7"
        )  # fmt: skip
        at, values = "strftime('%Y-%m-%d %H:%M:%f', 1793491200 + n * 0.7, 'unixepoch')", (
            f"json_object('loss', 10.0 / (1 + n / 5000.0) + {noise}, 'lr', 0.001)"
        )  # fmt: skip
        source = "n"
    else:
        series, source = "", f"generate_series(0, {POINTS - 1}) AS n"
        at = "to_timestamp(1793491200 + n * 0.7)"
        values = "jsonb_build_object('loss', 10.0 / (1 + n / 5000.0) + random() / 10, 'lr', 0.001)"
    with connection.cursor() as cursor:
        for task in ids:
            cursor.execute(
                f'INSERT INTO training_metricpoint (task_id, attempt, rank, step, at, "values", source, pattern) '
                f"{series} SELECT %s, 1, 0, n * 10, {at}, {values}, 'json', '' FROM {source}",
                [task],
            )
        cursor.execute("ANALYZE")
    return ids


if __name__ == "__main__":
    import django

    django.setup()
    print(json.dumps(_measure_inside()))
