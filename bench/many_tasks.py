"""Very many running tasks on a simulated engine (`bench.replay_engine`). Imported inside Django."""

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import orjson
import redis
from django.conf import settings
from django.db import connection

from apps.accounts.models import Project, User
from apps.clusters.models import Cluster
from apps.common import pubsub
from apps.common.clock import now
from apps.training.core import engine_access, wakeups
from apps.training.core import observation_store as seen_last
from apps.training.logs import sharding
from apps.training.models import Attempt, Node, Task
from apps.training.reconcile import engine_watch, reconciler
from apps.training.states import TaskState
from bench import preview, procfs, series
from bench.replay_engine import NUMBER, RANKS, ReplayBackend, make_observation, make_task_id, parse_task_number
from bench.temp_platform import ROOT
from fermi.planning import plugins
from tests.polling import until

SWEEPS, PAUSE = 9, 0.5
SECONDS, CHANGES_PER_SECOND, CONCURRENT_CHANGES = 8, 1000, 50
"""Changes are made 20 times a second."""


def measure_cost(count: int) -> dict[str, Any]:
    file = Path(settings.DATA_DIR) / "changes"
    file.write_bytes(bytes(count * NUMBER.size))
    cluster = Cluster.objects.create(name="recorded", backend="recorded", connection={"file": str(file)})
    _make_tasks(cluster, count)
    engine = engine_access.get_backend(cluster)
    assert isinstance(engine, ReplayBackend)
    found: dict[str, Any] = {
        "unwatched": _measure_full_sweep(),
        "more": _count_statements(1000) - _count_statements(10),
    }
    with _measure_watched():
        found |= {"every": _measure_full_sweep(), **_measure_paced_sweeps()}
        with _start_worker() as pid:
            return {**found, **_measure_changes(engine, cluster, count, pid)}


def _make_tasks(cluster: Cluster, count: int) -> None:
    """Create the tasks: one of 64 ranks as the platform would, and all others as copies of it and its rows."""
    first = make_task_id(0)
    job = replace(preview.make_job(RANKS), task_id=first, attempt=1)
    plan = plugins.get_framework(job.framework).plan(job)
    rendered = plugins.get_backend("local", preview.CONNECTION).render(job, plan).to_json()
    moment = now()
    task = Task.objects.create(
        id=first, project=Project.objects.get(), owner=User.objects.get(), cluster=cluster, name=first,
        framework=job.framework, node_count=len(job.nodes), total_gpus=RANKS, world_size=RANKS, master=job.head.id,
        request={"name": first}, spec=job.to_json(), summary=rendered, state=TaskState.RUNNING, state_since=moment,
        attempt=1, due_at=moment, created_at=moment, started_at=moment,
    )  # fmt: skip
    Attempt.objects.create(
        task=task, number=1, master_port=29500, plan=rendered, created_at=moment, running_at=moment,
        submitted_at=moment,
    )  # fmt: skip
    seen_last.store_observations([(task.attempts.get(), make_observation(0))])
    for rank, node in enumerate(job.nodes):
        Node.objects.create(task=task, node_rank=rank, name=node.name, processes=node.processes)
    copies = {"id": "'task-size-' || lpad(n::text, 5, '0')", "name": "'task-size-' || lpad(n::text, 5, '0')"}
    _copy_rows(Task, copies, count)
    for model in (Attempt, Node):
        _copy_rows(model, {"id": "nextval(pg_get_serial_sequence('%s', 'id'))", "task_id": copies["id"]}, count)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _copy_rows(model: Any, made: dict[str, str], count: int) -> None:
    table = model._meta.db_table
    names = [field.column for field in model._meta.concrete_fields]
    values = ", ".join(made.get(name, f'old."{name}"').replace("%s", table) for name in names)
    columns = ", ".join(f'"{name}"' for name in names)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({columns}) SELECT {values} FROM {table} AS old, generate_series(1, {count - 1}) AS n"
        )


@contextmanager
def _measure_watched() -> Iterator[None]:
    """Measure passes with a watcher that reports all tasks again and again."""
    share, ending = sharding.ShardedWatcher(), threading.Event()

    def report_looks() -> None:
        while not ending.wait(0.5):
            share.looked(time.time())

    threads = [threading.Thread(target=share.run, args=(ending,)), threading.Thread(target=report_looks)]
    for thread in threads:
        thread.start()
    try:
        until(reconciler._is_watched, seconds=30, what="a watcher looks")
        yield
    finally:
        ending.set()
        share.hurry()
        for thread in threads:
            thread.join()


def _measure_full_sweep() -> float:
    """Return the seconds of a sweep when all tasks are due: 1,000 at a time."""
    Task.objects.update(due_at=now(), claimed_at=None)
    took: list[float] = []
    while True:
        began = time.monotonic()
        if not reconciler.reconcile_due_tasks():
            return max(took)
        took.append(time.monotonic() - began)


def _measure_paced_sweeps() -> dict[str, float]:
    """Measure sweeps at their pace: tasks are due again after five to ten minutes, in no order; here the same number of
    them between two sweeps, but sooner."""
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE training_task SET due_at = now() + random() * interval '{450 * PAUSE / 2} seconds'")
    reconciler.reconcile_due_tasks()  # of what was due when all rows were written
    moment, took, looked = time.monotonic(), [], 0
    for _ in range(SWEEPS):
        moment += PAUSE
        time.sleep(max(0.0, moment - time.monotonic()))
        with count_statements() as asked:
            began = time.monotonic()
            looked += reconciler.reconcile_due_tasks()
            took.append(time.monotonic() - began)
    return {"sweep": median(took), "worst": max(took), "looked": looked / SWEEPS, "statements": asked[0]}


def _count_statements(due: int) -> int:
    """Return the SQL statements of a sweep over this many unchanged tasks."""
    keys = list(Task.objects.values_list("pk", flat=True)[:due])
    Task.objects.filter(pk__in=keys).update(due_at=now(), claimed_at=None)
    with count_statements() as asked:
        reconciler.reconcile_due_tasks()
    return asked[0]


@contextmanager
def count_statements() -> Iterator[list[int]]:
    asked = [0]

    def count(execute: Callable[..., Any], *args: Any) -> Any:
        asked[0] += 1
        return execute(*args)

    with connection.execute_wrapper(count):
        yield asked


@contextmanager
def _start_worker() -> Iterator[int]:
    """Start a worker as the platform does."""
    command = [sys.executable, "-m", "celery", "--quiet", "-A", "server.celery", "worker", "--pool", "threads",
               "--without-gossip", "--without-mingle", "--without-heartbeat"]  # fmt: skip
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        try:
            pubsub.get_client().delete(f"{pubsub.CHANNEL_PREFIX}kept.sweep")
            until(_run_sweep, seconds=60, what="the worker sweeps")
            yield process.pid
        finally:
            process.terminate()
            process.wait(20)


def _run_sweep() -> bool:
    wakeups.enqueue_task("training.sweep")
    return pubsub.get_figure("sweep") is not None


class ChangeListener:
    """Records when each task's change was last published, which happens once it is stored."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self._pubsub = redis.from_url(settings.REDIS_URL).pubsub()
        self._pubsub.psubscribe(f"{pubsub.CHANNEL_PREFIX}task:*")
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        for message in self._pubsub.listen():
            if message["type"] == "pmessage" and orjson.loads(message["data"])["kind"] == "status":
                self.at[message["channel"].decode().rpartition(":")[2]] = time.monotonic()


def _measure_changes(engine: ReplayBackend, cluster: Cluster, count: int, worker: int) -> dict[str, float]:
    """Measure how soon changes are stored that the engine reports in this process, which forwards them as the watcher
    does."""
    ending, ear = threading.Event(), ChangeListener()
    threading.Thread(
        target=engine_watch.create_engine_watchers().run, args=(ending, lambda key: key == cluster.pk), daemon=True
    ).start()
    order = random.Random(1).sample(range(count), count)
    engine.change(order[:CONCURRENT_CHANGES])
    until(lambda: len(ear.at) >= CONCURRENT_CHANGES, seconds=60, what="changes are followed")
    ear.at.clear()
    before = procfs.read_cpu_seconds([worker]), series.postgres_seconds()
    mine, made, began = time.process_time(), dict[str, float](), time.monotonic()
    for turn in range(SECONDS * CHANGES_PER_SECOND // CONCURRENT_CHANGES):
        chosen = [order[(turn * CONCURRENT_CHANGES + n) % count] for n in range(CONCURRENT_CHANGES)]
        time.sleep(max(0.0, began + turn * CONCURRENT_CHANGES / CHANGES_PER_SECOND - time.monotonic()))
        moment = time.monotonic()
        made |= {make_task_id(number): moment for number in chosen}
        engine.change(chosen)
    fed = time.monotonic()
    until(lambda: len(ear.at) >= len(made), seconds=120, what="all changes are followed")
    ended = time.monotonic()
    total = SECONDS * CHANGES_PER_SECOND
    delays = sorted(ear.at[key] - made[key] for key in made)
    return {
        "within": 100 * sum(delay <= 1 for delay in delays) / len(delays), "median": median(delays),
        "last": delays[-1], "made": total / (fed - began), "rate": total / (ended - began),
        "worker": (procfs.read_cpu_seconds([worker]) - before[0]) / total,
        "postgres": (series.postgres_seconds() - before[1]) / total,
        "watch": (time.process_time() - mine) / total,
        "stored": _count_outdated(engine),
    }  # fmt: skip


def _count_outdated(engine: ReplayBackend) -> float:
    """Return for how many tasks the stored state differs from the engine's."""
    said = cache(lambda changes: seen_last.serialize_observation(make_observation(changes)))
    kept = Attempt.objects.filter(task__cluster__backend="recorded").values_list("task", "seen")
    return sum(told != said(engine.changes(parse_task_number(task))) for task, told in kept.iterator())
