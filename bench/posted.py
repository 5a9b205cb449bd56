"""Many tasks that are posted at once, and the threads of one worker. Imported inside Django."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from django.conf import settings
from django.db import close_old_connections, connection

from apps.accounts.models import Project, User
from apps.clusters import leases, selectors
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment
from apps.training.core import engine_access, task_store, wakeups
from apps.training.models import Event, Task
from apps.training.reconcile import ports, reconciler
from apps.training.states import TaskState
from bench import preview
from bench.replay_engine import NUMBER, ReplayBackend, make_task_id
from fermi.jobs.spec import Entrypoint, JobSpec, Rendered
from fermi.planning import plugins
from fermi.runner.run_names import parse_run_name
from tests.polling import until

THREADS, SWEEPS = 8, 2.0
ENQUEUE_COUNT = 0.02
"""Seconds that the engine takes to make a gang."""


def measure_cost(count: int) -> dict[str, float]:
    file = Path(settings.DATA_DIR) / "changes"
    file.write_bytes(bytes(count * NUMBER.size))
    cluster = Cluster.objects.create(name="recorded", backend="recorded", connection={"file": str(file)})
    _prepare_engine(engine_access.get_backend(cluster))
    jobs = [_make_job(cluster, number) for number in range(count)]
    messages, began, failed = SimpleQueue[tuple[str, ...]](), Counter[str](), _FailureCounter()
    look, take = ports.find_ports, leases.acquire_port

    def looked(task: Task, backend: Any) -> Any:
        """Once in each pass that begins an attempt."""
        began[task.pk] += 1
        return look(task, backend)

    def taken(host: str, candidates: Sequence[int], holder: str) -> int:
        """Others were quicker with all of its ports: that it looks again is no other pass's doing."""
        try:
            return take(host, candidates, holder)
        except leases.NoFreePortError:
            began[parse_run_name(holder)[0]] -= 1
            raise

    ports.find_ports, leases.acquire_port = looked, taken
    wakeups.enqueue_task = lambda *hint: messages.put(hint)
    logging.getLogger("apps.training.reconcile.reconciler").addHandler(failed)
    ending = threading.Event()
    threads = [threading.Thread(target=_run_messages, args=(messages, ending)) for _ in range(THREADS)]
    threads.append(threading.Thread(target=_run_beat, args=(messages, ending)))
    moment, owner = time.monotonic(), User.objects.get()
    for job in jobs:
        task_store.store_task(job, owner, cluster, name=job.task_id, request={})
    for thread in threads:
        thread.start()
    try:
        until(
            lambda: Task.objects.filter(state=TaskState.RUNNING).count() == count, seconds=100, what="all of them run"
        )
    finally:
        ending.set()
        for thread in threads:
            thread.join()
    begun = Event.objects.filter(code="ATTEMPT_BEGAN").count()
    assert begun == count, begun
    repeated = sum(times - 1 for times in began.values())
    return {"repeated": repeated, "failed": failed.count, "seconds": time.monotonic() - moment}


def _prepare_engine(engine: Any) -> None:
    assert isinstance(engine, ReplayBackend)
    local = plugins.get_backend("local", preview.CONNECTION)

    def submit(rendered: Rendered, secrets: object = None) -> None:
        wakeups.enqueue_task(parse_run_name(rendered.name)[0])
        time.sleep(ENQUEUE_COUNT)

    engine.render = local.render  # type: ignore[method-assign]
    engine.submit = submit  # type: ignore[method-assign]


def _make_job(cluster: Cluster, number: int) -> JobSpec:
    project, zone = Project.objects.get(), AvailabilityZone.objects.get_or_create(name="burst")[0]
    name = f"env-burst-{number}"
    made = DevEnvironment.objects.create(
        id=name, name=name, project=project, cluster=cluster, zone=zone, gpu_type="A100", gpu_count=1, emulated=True
    )
    (node,) = selectors.build_nodes([made])
    return replace(
        JobSpec(make_task_id(number), "pytorch-ddp", (node,), name, project=project.pk),
        entrypoint=Entrypoint("train.py"), checkpoint_dir="/c",
    )  # fmt: skip


def _run_messages(messages: SimpleQueue[tuple[str, ...]], ending: threading.Event) -> None:
    while not ending.is_set():
        try:
            name, *args = messages.get(timeout=0.1)
        except Empty:
            continue
        try:
            close_old_connections()
            reconciler.reconcile_tasks(*args) if name == "training.reconcile" else reconciler.reconcile_due_tasks()
        except Exception:
            logging.getLogger("apps.training.reconcile.reconciler").exception("a message failed")
    connection.close()


def _run_beat(messages: SimpleQueue[tuple[str, ...]], ending: threading.Event) -> None:
    while not ending.wait(SWEEPS):
        messages.put(("training.sweep",))


class _FailureCounter(logging.Handler):
    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += record.levelno >= logging.ERROR
