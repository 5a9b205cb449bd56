"""Each way in which a task begins again hands a script that knows nothing of the platform its checkpoint, by the rule
that the request has: real processes on this machine."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from apps.accounts.models import Membership, Project, Role, User
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, EnvironmentStatus
from apps.common.clock import now
from apps.training.drills import runs
from apps.training.models import Checkpoint, Drill, Task
from apps.training.services import actions, pause, restart, retention
from apps.training.services.create import retry_task, submit_request
from apps.training.states import FINAL_STATES, TaskState
from tests.apps.task_passes import advance_tasks
from tests.polling import until

pytestmark = pytest.mark.django_db(transaction=True)

SCRIPT = """
import argparse, json, os, pickle, signal, sys, time, zipfile
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path)
parser.add_argument("--marks", type=Path)
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--once", default="")  # what happens in the first attempt alone
parser.add_argument("--resume", type=Path)
args = parser.parse_args()
rank, done = int(os.environ["RANK"]), 0
if args.resume:
    with zipfile.ZipFile(args.resume) as archive:
        done = pickle.loads(archive.read("archive/data.pkl"))["step"]
first = not (args.marks / f"began-{rank}").exists()
args.marks.mkdir(exist_ok=True)
args.out.mkdir(parents=True, exist_ok=True)
(args.marks / f"began-{rank}").touch()
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))


def save(step):
    path = args.out / f"step-{step}.pt"
    with zipfile.ZipFile(f"{path}.tmp", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"model": {"a.weight": 0}, "step": step}, protocol=2))
    os.rename(f"{path}.tmp", path)


for step in range(done + 1, args.steps + 1):
    if rank == 0:
        bad = first and args.once == "nan" and step > 50
        print(f"step {step}: loss {float('nan') if bad else 1 / step}", flush=True)
        if step % 20 == 0:
            save(step)
    if first and args.once == "crash" and step == 50 and rank == 0:
        time.sleep(5)  # what was saved is found
        os._exit(3)
    time.sleep(0.01)
    if first and args.once in ("wait", "nan") and step == 70:
        while not stop:
            time.sleep(0.01)
    if stop:
        sys.exit(143)
"""


@pytest.fixture
def project(user: User, settings: Any, tmp_path: Path) -> Project:
    settings.DATA_DIR = tmp_path
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "train.py").write_text(SCRIPT)
    cluster, zone = Cluster.objects.create(name="c", backend="local"), AvailabilityZone.objects.create(name="z")
    project = Project.objects.create(name="p")
    Membership.objects.create(project=project, user=user, role=Role.MAINTAINER)
    for name in ("a", "b"):
        DevEnvironment.objects.create(
            id=f"env-{name}", name=f"gn-{name}", project=project, cluster=cluster, zone=zone, gpu_type="A100",
            gpu_count=1, emulated=True, status=EnvironmentStatus.RUNNING,
        )  # fmt: skip
    return project


def submit(user: User, *args: str, environments: tuple[str, ...] = ("env-a",), **more: Any) -> Task:
    marks = Path(django_settings.DATA_DIR) / "workspace" / f"marks-{Task.objects.count()}"
    words = ["--out={checkpoint_dir}", f"--marks={marks}", *args]
    request: dict[str, Any] = {
        "taskName": f"t{Task.objects.count()}", "environmentIds": [*environments], "maxRestarts": 1,
        "datasetId": None, "datasetVersionId": None,
        "graceSeconds": 5, "entrypoint": {"script": "train.py", "args": words, "resume": {"args": ["--resume={path}"]}},
        **more,
    }  # fmt: skip
    return submit_request(user, request)


def advance_until(condition: Callable[[], Any], what: str) -> None:
    until(lambda: (advance_tasks(), condition())[1], seconds=120, what=what)


def has_saved(task: Task, step: int = 60) -> bool:
    return Checkpoint.objects.filter(task=task, step=step).exists()


def finish(task: Task) -> Task:
    advance_until(lambda: not Task.objects.exclude(state__in=FINAL_STATES).exists(), "all are over")
    task.refresh_from_db()
    assert task.state == TaskState.SUCCEEDED, (task.reason, task.reason_params)
    return task


def assert_resumed(task: Task, step: int, attempt: int = 2) -> None:
    """The attempt got the checkpoint of the step, and its first point is the next one."""
    one = task.attempts.get(number=attempt)
    assert Path(one.resume_from).name == f"step-{step}.pt"
    assert min(task.metrics.filter(attempt=attempt, rank=0).values_list("step", flat=True)) == step + 1


@pytest.mark.parametrize("folder", ["{checkpoint_dir}", "{output_dir}/run"])
def test_after_a_crash(user: User, project: Project, folder: str) -> None:
    assert_resumed(finish(submit(user, "--once=crash", f"--out={folder}")), 40)


def test_after_a_pause(user: User, project: Project) -> None:
    task = submit(user, "--once=wait")
    advance_until(lambda: has_saved(task), "a checkpoint")
    pause.pause_task(user, task.pk)
    advance_until(lambda: Task.objects.get(pk=task.pk).state == TaskState.QUEUED, "it rests")
    pause.resume_task(user, task.pk)
    assert_resumed(finish(task), 60)


def test_after_a_task_of_a_higher_priority(user: User, project: Project) -> None:
    low = submit(user, "--once=wait", priority="low", preemptible=True, minRunSeconds=0, maxRestarts=0)
    advance_until(lambda: has_saved(low), "a checkpoint")
    high = submit(user, "--steps=2", priority="high")
    finish(high)
    assert_resumed(finish(low), 60)
    assert [one.outcome for one in low.attempts.order_by("number")] == ["GAVE_WAY", "COMPLETED"]


def test_after_a_restart_on_request(user: User, project: Project) -> None:
    task = submit(user, "--once=wait", maxRestarts=0)
    advance_until(lambda: has_saved(task), "a checkpoint")
    restart.restart_task(user, task.pk)
    assert_resumed(finish(task), 60)


def test_on_fewer_nodes(user: User, project: Project) -> None:
    config = {"enabled": True, "nodeIds": ["env-a", "env-b"], "masterNode": "env-a", "framework": "ddp",
              "elastic": {"minNodes": 1, "maxNodes": 2}}  # fmt: skip
    task = submit(user, "--once=wait", environments=("env-a", "env-b"), distributedConfig=config, maxRestarts=0)
    advance_until(lambda: has_saved(task), "a checkpoint")
    restart.restart_task(user, task.pk, ["env-b"])
    assert_resumed(finish(task), 60)
    assert task.world_size == 1


def test_after_the_loss_went_bad_from_before_that(user: User, project: Project) -> None:
    task = submit(user, "--once=nan", onBadLoss="rollback", maxRestarts=2)
    finish(task)
    assert [one.outcome for one in task.attempts.order_by("number")] == ["BAD_LOSS", "COMPLETED"]
    assert_resumed(task, 40)


def test_with_a_retry_and_in_a_new_task_that_names_a_checkpoint(user: User, project: Project, settings: Any) -> None:
    first = submit(user, "--once=crash", "--out={output_dir}/run", maxRestarts=0)
    advance_until(lambda: Task.objects.get(pk=first.pk).state == TaskState.FAILED, "it has failed")
    again = retry_task(user, first.pk)
    finish(again)
    assert_resumed(again, 40, attempt=1)
    earlier = Checkpoint.objects.get(task=first, step=20).path
    request = {**actions.clone_request(user, first.pk)["request"], "taskName": "another", "resumeFrom": earlier}
    other = submit_request(user, json.loads(json.dumps(request)))
    finish(other)
    assert_resumed(other, 20, attempt=1)
    Task.objects.update(ended_at=now() - timedelta(days=40))
    settings.TASKS_KEEP_DAYS = 30
    retention.delete_expired_tasks()
    assert Path(earlier).exists(), "another task goes on from it"
    assert Task.objects.filter(pk=first.pk).exists()


def test_in_a_drill(user: User, project: Project) -> None:
    task = submit(user, "--steps=100000")
    advance_until(lambda: has_saved(task), "a checkpoint")
    actions.stop_task(user, task.pk)
    advance_until(lambda: Task.objects.get(pk=task.pk).state in FINAL_STATES, "it has stopped")
    drill = runs.start_drill_of_task(user, Task.objects.get(pk=task.pk), minutes=2)
    advance_until(lambda: not Task.objects.exclude(state__in=FINAL_STATES).exists(), "all are over")
    report = Drill.objects.get(pk=drill.pk).report
    assert report["verdict"]["code"] == "DRILL_RESUMES", report
