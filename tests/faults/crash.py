"""Runs a task's whole life with the reconciler killed at its k-th line, then again without: `crash.py <scenario>
<first> <every> <scratch> <port> [kubeconfig]`, where k is `first`, and then always `every` more; on this machine, or on
the cluster of the kubeconfig.

The parent sets Django and a database up once and forks; a child counts the lines it executes in the modules that
launch, record and cancel, and dies at the k-th as by kill -9. A second child then finishes the work. Prints one JSON
object per crash point: where it was, and how the task ended.
"""

import json
import os
import shutil
import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

SCENARIO, FIRST, EVERY, SCRATCH = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
PORT, KUBECONFIG = int(sys.argv[5]), sys.argv[6] if len(sys.argv) > 6 else ""
DATA = SCRATCH / "data"
STARTS = DATA / "workspace" / "starts"  # of the data directory, ranks reach no more
DATA.mkdir(parents=True)
os.environ.update(FERMI_DATA=str(DATA), DJANGO_SETTINGS_MODULE="server.settings", FERMI_STAND_BY="0")
os.environ.pop("DATABASE_URL", None)

import django  # noqa: E402

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connections  # noqa: E402

from apps.accounts.models import Project, User  # noqa: E402
from apps.catalog.models import Dataset, DatasetVersion, Model, VersionStatus  # noqa: E402
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, Lease, PortLease  # noqa: E402
from apps.common.clock import now  # noqa: E402
from apps.scheduling.models import Usage  # noqa: E402
from apps.training.core.engine_access import get_backend  # noqa: E402
from apps.training.models import Attempt, Event, MetricPoint, Node, Queue, Task  # noqa: E402
from apps.training.reconcile import reconciler  # noqa: E402
from apps.training.states import FINAL_STATES  # noqa: E402
from fermi.engines.kubernetes.client import KubernetesClient  # noqa: E402
from fermi.engines.local.engine import list_running_attempts, stop_everything  # noqa: E402
from fermi.jobs import spec  # noqa: E402
from fermi.planning import elastic_sizes  # noqa: E402
from fermi.scheduler.ledger import PART_NAMES  # noqa: E402

ROOT = Path(__file__).parents[2]
WATCHED = (
    "apps/training/reconcile/reconciler.py", "apps/training/reconcile/actions.py",
    "apps/training/queue/scheduling_pass.py", "apps/training/queue/entry.py", "apps/training/core/release.py",
    "apps/training/core/transitions.py", "apps/training/core/placement.py",
    "apps/training/core/elastic_size.py", "apps/training/logs/ingest.py", "apps/clusters/leases.py",
    "platform/fermi/engines/local/engine.py", "platform/fermi/engines/local/launcher.py",
    "platform/fermi/runner/terminate.py",
    "platform/fermi/engines/kubernetes/engine.py", "platform/fermi/engines/kubernetes/deletion.py",
)  # fmt: skip
"""The process is killed in these files alone."""
assert all((ROOT / name).is_file() for name in WATCHED)
CONNECTION = {"kubeconfig": KUBECONFIG, "namespace": "fermi", "python": sys.executable} if KUBECONFIG else {}
SCRIPT = """
import os, sys, time
rank, attempt = os.environ["RANK"], os.environ["FERMI_ATTEMPT"]
with open(sys.argv[2], "a") as file:
    file.write(f"{attempt}/{rank}\\n")
print('{"step": 1, "loss": 2.5}', flush=True)
while sys.argv[1] == "shrink" and attempt == "1" and rank == "1" and not os.path.exists(sys.argv[2] + ".lost"):
    time.sleep(0.02)
if sys.argv[1] in ("restart", "shrink") and attempt == "1" and rank == "1":
    sys.exit(3)
if sys.argv[1] == "stop" or (sys.argv[1] == "preempt" and attempt == "1"):
    time.sleep(600)
"""


def make_world() -> None:
    call_command("migrate", verbosity=0)
    User.objects.create(username="u")
    project = Project.objects.create(name="p")
    backend = "kubernetes" if KUBECONFIG else "local"
    cluster = Cluster.objects.create(id="c", name="c", backend=backend, connection=CONNECTION)
    zone = AvailabilityZone.objects.create(name="z")
    DatasetVersion.objects.create(
        dataset=Dataset.objects.create(name="d"), name="1", status=VersionStatus.READY, train_path="t", valid_path="v"
    )
    Model.objects.create(name="m")
    (DATA / "workspace").mkdir()
    (DATA / "workspace" / "script.py").write_text(SCRIPT)
    nodes = tuple(
        spec.Node(
            f"env-{i}", f"n{i}", gpu_type="A100", gpu_count=i, emulated=True, zone="z", image="training:1",
            engine={"node": "machine"},
        )
        for i in (1, 2)
    )  # fmt: skip
    job = spec.JobSpec(
        "task-x", "pytorch-ddp", nodes, "env-1", env={"PYTHONHASHSEED": "0"}, grace_seconds=0.2, master_port=PORT,
        entrypoint=spec.Entrypoint(str(DATA / "workspace" / "script.py"), (SCENARIO, str(STARTS))),
        checkpoint_dir=str(DATA / "checkpoints" / "task-x"),
        elastic=spec.Elastic(1, 2) if SCENARIO == "shrink" else None,
    )  # fmt: skip
    for node in nodes:
        DevEnvironment.objects.create(id=node.id, name=node.name, project=project, cluster=cluster, zone=zone)
    add_task(elastic_sizes.set_full_size(job), preemptible=True, min_run_seconds=0)


def add_task(job: spec.JobSpec, **changes: Any) -> None:
    project, user, cluster = Project.objects.get(), User.objects.get(), Cluster.objects.get()
    version, model = DatasetVersion.objects.get(), Model.objects.get()
    task = Task.objects.create(
        id=job.task_id, project=project, owner=user, cluster=cluster, name="t", framework="pytorch-ddp",
        dataset_version=version, model=model, distributed=True, node_count=2, total_gpus=3, world_size=3,
        master="env-1", request={}, spec=job.to_json(), summary={}, state_since=now(), due_at=now(), created_at=now(),
        **changes,
    )  # fmt: skip
    for rank, node in enumerate(job.nodes):
        Node.objects.create(task=task, node_rank=rank, environment_id=node.id, name=node.name, processes=rank + 1)


def add_urgent() -> None:
    """It wants what the task has that runs."""
    job = spec.JobSpec.from_json(Task.objects.get().spec)
    entrypoint = replace(job.entrypoint, args=("succeed", f"{STARTS}.urgent"))
    folder = str(DATA / "checkpoints" / "task-y")
    add_task(replace(job, task_id="task-y", entrypoint=entrypoint, checkpoint_dir=folder), priority=100)


def sweep_until_final(seconds: float) -> None:
    """The sweep, as beat would have it, until the task is final."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        Task.objects.exclude(state__in=FINAL_STATES).update(
            due_at=now(), claimed_at=None
        )  # a claim left by a crash would only cost time
        Queue.objects.update(claimed_at=None, due_at=now())
        reconciler.reconcile_due_tasks()
        if not Task.objects.exclude(state__in=FINAL_STATES).exists():
            return
        all_run = STARTS.exists() and STARTS.read_text().count("\n") == 3
        if SCENARIO == "stop" and all_run:
            Task.objects.filter(stop_requested_at=None).update(stop_requested_at=now())
        if SCENARIO == "preempt" and all_run and Task.objects.count() == 1:
            add_urgent()
        lost = STARTS.with_name(f"{STARTS.name}.lost")
        if SCENARIO == "shrink" and STARTS.exists() and "1/1" in STARTS.read_text() and not lost.exists():
            DevEnvironment.objects.filter(pk="env-2").update(status="unhealthy")
            lost.touch()
        time.sleep(0.02)


def die_at(line: int) -> None:
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith(WATCHED):
            return None
        return each_line

    def each_line(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count == line:
                place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
                (SCRATCH / "place").write_text(place)
                os._exit(9)
        return each_line

    sys.settrace(trace)


def run_in_child(work: Any) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def list_printed() -> int:
    """A rank may be ended between its start and its line."""
    return sum(log.read_text().count('{"step"') for log in (DATA / "logs").rglob("*.log"))


def list_strays() -> list[str]:
    if not KUBECONFIG:
        return list_running_attempts(DATA)
    pods = KubernetesClient(CONNECTION).get("/api/v1/namespaces/fermi/pods")["items"]
    return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] not in ("Succeeded", "Failed")]


def clear_life() -> None:
    """Nothing of a life is left for the next one, which has the same names."""
    if not KUBECONFIG:
        stop_everything(DATA, 0.0)
        return
    backend = get_backend(Cluster.objects.get())
    while found := backend.orphans(()):
        for handle in found:
            backend.delete_attempt(handle)
        time.sleep(0.05)


def count_overlaps() -> int:
    """How often the ledger says that an environment was held by two, or twice."""
    rows = Usage.objects.order_by("environment", "since").values_list("environment", "since", "until")
    return sum(one[0] == other[0] and other[1] < one[2] for one, other in pairwise(rows))


def list_unbooked_attempts() -> list[str]:
    """Attempts during which the ledger does not have the master's environment all the time."""
    rows = Usage.objects.filter(environment="env-1")
    held = {
        attempt: rows.filter(task=attempt.task_id, since__lte=attempt.created_at, until__gte=attempt.ended_at)
        for attempt in Attempt.objects.all()
    }
    return [attempt.name for attempt, found in held.items() if not found.exists()]


def list_uneven_rows() -> int:
    """Rows of the ledger whose parts are not what was held."""
    return sum(
        abs(sum(getattr(row, part) for part in PART_NAMES) - (row.until - row.since).total_seconds()) > 1e-3
        for row in Usage.objects.all()
    )


def report(line: int, code: int) -> None:
    task = Task.objects.get(pk="task-x")
    urgent = Path(f"{STARTS}.urgent")
    starts = Counter(STARTS.read_text().split()) if STARTS.exists() else Counter()
    print(
        json.dumps(
            {
                "line": line, "place": (SCRATCH / "place").read_text(), "code": code, "state": task.state,
                "urgent": Counter(urgent.read_text(encoding="utf-8").split()) if urgent.exists() else {},
                "others": list(Task.objects.exclude(pk="task-x").values_list("state", flat=True)),
                "overlaps": count_overlaps(), "unbooked": list_unbooked_attempts(), "uneven": list_uneven_rows(),
                "reason": task.reason, "attempt": task.attempt, "starts": starts,
                "finals": Event.objects.filter(task=task, code=f"STATE_{task.state.upper()}").count(),
                "resized": Event.objects.filter(code="RESIZED").count(),
                "points": MetricPoint.objects.count(), "printed": list_printed(), "strays": list_strays(),
                "leases": Lease.objects.count() + PortLease.objects.count(),
                "seen": list(task.attempts.values_list("seen", flat=True)),
            }
        ),
        flush=True,
    )  # fmt: skip
    connections.close_all()


def main() -> None:
    make_world()
    connections.close_all()
    pristine = SCRATCH / "pristine"
    shutil.copytree(DATA, pristine)
    line, code = FIRST, 9
    while code == 9:
        shutil.rmtree(DATA)
        shutil.copytree(pristine, DATA)
        (SCRATCH / "place").write_text("not reached")

        def until_death(k: int = line) -> None:
            die_at(k)
            sweep_until_final(60)

        code = run_in_child(until_death)
        run_in_child(lambda: sweep_until_final(60))
        report(line, code)
        run_in_child(clear_life)
        line += EVERY


main()
