"""Sections that have to run inside Django, on temporary data:

python -m bench.in_django tasks|sweep|burst|workers|overview|telemetry|size <count>
"""

import io
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import django

django.setup()

from django.conf import settings  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection, transaction  # noqa: E402

from apps.accounts.models import Project, User  # noqa: E402
from apps.catalog.models import DatasetVersion, Model  # noqa: E402
from apps.clusters.models import Cluster  # noqa: E402
from apps.common.clock import now  # noqa: E402
from apps.training.core import engine_access, observation_store  # noqa: E402
from apps.training.models import Attempt, Node, Task  # noqa: E402
from apps.training.reconcile import reconciler  # noqa: E402
from apps.training.states import TaskState  # noqa: E402
from apps.workers.engine.store import DatabaseStore  # noqa: E402
from apps.workers.models import Report, Worker  # noqa: E402
from apps.workers.tokens import hash_token  # noqa: E402
from bench import fleet, many_tasks, posted, series  # noqa: E402
from bench.heartbeats import make_worker_id  # noqa: E402
from bench.timing import measure_in_turns, measure_seconds  # noqa: E402
from fermi.engines.agent import store  # noqa: E402
from fermi.jobs import spec  # noqa: E402
from fermi.planning import plugins  # noqa: E402
from fermi.runner import files, processes  # noqa: E402

ROUNDS = 5


def main(command: str, count: str) -> None:
    call_command("firststart", stdout=io.StringIO())
    if command == "workers":
        make_workers(int(count))
        return
    if command == "overview":
        fleet.make_fleet()
        print(json.dumps(fleet.measure_cost()))
        return
    if command == "telemetry":
        print(json.dumps(series.measure_cost(int(count))))
        return
    if command == "burst":
        print(json.dumps(posted.measure_cost(int(count))))
        return
    if command == "size":
        print(json.dumps(many_tasks.measure_cost(int(count))))
        return
    make_running_tasks(int(count))
    if command == "sweep":
        print(json.dumps(sweep()))


def make_workers(count: int) -> None:
    """Create eight workers on each node, all ordered to run one attempt. A worker's token is its id."""
    ids = [make_worker_id(number) for number in range(count)]
    project, orders = Project.objects.get(), []
    for rank, key in enumerate(ids):
        body = {"name": "task-bench-1", "digest": key, "spec": {}, "files": {}}
        orders.append(store.RankOrder(key, rank, rank // 8, key.partition("-")[0], key, body))
    with transaction.atomic():
        Worker.objects.bulk_create(
            Worker(pk=key, node=key.partition("-")[0], number=int(key.partition("-")[2]), project=project,
                   machine="bench", incarnation="bench", digest=hash_token(key))
            for key in ids
        )  # fmt: skip
        Report.objects.bulk_create(Report(worker_id=key, at=now()) for key in ids)
        DatabaseStore().put("task-bench-1", "task-bench", 1, orders)


def make_running_tasks(count: int) -> None:
    """Create tasks of one environment with two ranks, one hour into their first attempt, with what the engine keeps of
    them."""
    me = {"pid": os.getpid(), "start_time": processes.read_start_time(os.getpid())}
    with transaction.atomic():
        for number in range(count):
            attempt = _running_task(f"task-bench-{number:05}")
            _write_run_folder(attempt, me)
            observation_store.store_observations([(attempt, _make_observation(attempt))])


def _running_task(task_id: str) -> Attempt:
    machine = spec.Node("env-001", "pytorch-dev-env", gpu_type="A100", gpu_count=2, emulated=True)
    job = spec.JobSpec(task_id, "pytorch-ddp", (machine,), machine.id, train_data="t", valid_data="v", attempt=1)
    moment = now()
    task = Task.objects.create(
        id=task_id, project=Project.objects.get(), owner=User.objects.get(), cluster=Cluster.objects.get(),
        name=task_id, framework=job.framework, dataset_version=DatasetVersion.objects.get(), model=Model.objects.get(),
        node_count=1, total_gpus=2, world_size=2, master=machine.id, request={}, spec=job.to_json(), summary={},
        total_steps=200, state=TaskState.RUNNING, state_since=moment, attempt=1, due_at=moment, created_at=moment,
        started_at=moment,
    )  # fmt: skip
    Node.objects.create(task=task, node_rank=0, environment_id=machine.id, name=machine.name, processes=2)
    backend = engine_access.get_backend(task.cluster)
    plan = backend.render(job, plugins.get_framework(job.framework).plan(job)).to_json()
    return Attempt.objects.create(
        task=task, number=1, master_port=29500, plan=plan, created_at=moment, running_at=moment
    )  # fmt: skip


def _write_run_folder(attempt: Attempt, runner: dict[str, Any]) -> None:
    """Write the run directory, as a runner with living ranks leaves it."""
    folder = Path(settings.DATA_DIR) / "runs" / attempt.name
    folder.mkdir(parents=True)
    launch, machine, *_ = attempt.plan["artifacts"]
    files.write_json_atomically(str(folder / "launch.json"), launch["content"])
    files.write_json_atomically(str(folder / "node-0.json"), machine["content"])
    ranks = [
        {"rank": rank, "local_rank": rank, "state": "running", "exit_code": None, "ended_at": None, **runner}
        for rank in range(2)
    ]
    status = {**files.build_first_status(attempt.name, 0, "running"), "runner": runner, "ranks": ranks}
    files.write_json_atomically(str(folder / "node-0.status.json"), status)


def _make_observation(attempt: Attempt) -> spec.Observation:
    handle = engine_access.build_handle(attempt.task, 1)
    return engine_access.get_backend(attempt.task.cluster).observe([handle])[handle.name]


def sweep() -> dict[str, float]:
    def quiet() -> None:
        Task.objects.update(due_at=now())

    def news() -> None:
        quiet()
        Attempt.objects.update(seen={}, seen_mark="")

    def load() -> None:
        list(Task.objects.select_related("cluster").prefetch_related("attempts"))

    def once(prepare: Callable[[], None], action: Callable[[], object]) -> float:
        prepare()
        return measure_seconds(action)

    took = measure_in_turns(
        ROUNDS, load=partial(measure_seconds, load), quiet=partial(once, quiet, reconciler.reconcile_due_tasks),
        news=partial(once, news, reconciler.reconcile_due_tasks),
    )  # fmt: skip
    return {**took, "quiet_queries": _count_queries(quiet), "news_queries": _count_queries(news)}


def _count_queries(prepare: Callable[[], None]) -> int:
    asked = 0

    def count(execute: Callable[..., Any], *args: Any) -> Any:
        nonlocal asked
        asked += 1
        return execute(*args)

    prepare()
    with connection.execute_wrapper(count):
        reconciler.reconcile_due_tasks()
    return asked


if __name__ == "__main__":
    main(*sys.argv[1:])
