"""Drills of users' scripts, real processes on this machine: a rank is killed, and it is told whether they resume."""

from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import Project, User
from apps.clusters import selectors
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, Lease
from apps.common.clock import now
from apps.training.core import task_store
from apps.training.drills import presenters, runs
from apps.training.models import Drill, Event, Task
from apps.training.states import FINAL_STATES, TaskKind, TaskState
from fermi.jobs.spec import Entrypoint, JobSpec
from tests.apps.task_passes import advance_tasks
from tests.platform_process import free_port
from tests.polling import until

pytestmark = pytest.mark.django_db(transaction=True)

SCRIPT = """
import json, os, sys, time
from pathlib import Path
habits, rank = sys.argv[1:], os.environ["RANK"]
folder, resume_from = Path(os.environ["FERMI_CHECKPOINT_DIR"]), os.environ["FERMI_RESUME_FROM"]
if resume_from and "cannot-read" in habits:
    raise ValueError(f"bad magic in {resume_from}")
done = int(Path(resume_from).read_text()) if resume_from and "starts-over" not in habits else 0

def report(**values):
    if rank == "0":
        print(json.dumps(values), flush=True)

if done:
    report(event="resumed", step=done, path=resume_from)
for step in range(done + 1, 5 if "is-short" in habits else 100_000):
    report(step=step, loss=1 / step)
    if step % 20 == 0 and rank == "0" and "never-saves" not in habits:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{step}.pt"
        path.with_suffix(".partial").write_text(str(step))
        path.with_suffix(".partial").rename(path)
        if "tells-nobody" not in habits:
            report(event="checkpoint", step=step, path=str(path), size_bytes=path.stat().st_size)
    time.sleep(0.02)
"""


@pytest.fixture
def project(user: User, settings: Any, tmp_path: Path) -> Project:
    settings.DATA_DIR = tmp_path
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "train.py").write_text(SCRIPT)
    Cluster.objects.create(name="c", backend="local")
    AvailabilityZone.objects.create(name="z")
    return Project.objects.create(name="p")


def make(
    user: User, project: Project, *habits: str, minutes: float = 5.0, state: TaskState = TaskState.STOPPED
) -> Task:
    """With two ranks on an environment of its own."""
    name = "-".join(habits) or "well"
    cluster, zone = Cluster.objects.get(), AvailabilityZone.objects.get()
    environment = DevEnvironment.objects.create(
        id=f"env-{name}", name=f"gn-{name}", project=project, cluster=cluster, zone=zone, gpu_type="A100", gpu_count=2,
        emulated=True,
    )  # fmt: skip
    job = JobSpec(
        f"task-{name}", "pytorch-ddp", tuple(selectors.build_nodes([environment])), environment.pk,
        master_port=free_port(), entrypoint=Entrypoint("train.py", habits), project=project.pk,
        checkpoint_dir=str(Path(project.name)), env={"PYTHONHASHSEED": "0"}, drill_minutes=minutes,
    )  # fmt: skip
    over = state in FINAL_STATES
    task = Task.objects.create(
        id=job.task_id,
        project=project,
        owner=user,
        cluster=cluster,
        name=name,
        framework=job.framework,
        request={},
        state=state,
        state_since=now(),
        due_at=None if over else now(),
        created_at=now(),
        **task_store.build_job_columns(job),
    )
    task_store.store_nodes(task, job)
    return task


def live(*waiting: Task) -> None:
    """Until all drills, and the tasks that wait for them, are over."""
    until(advance_tasks, seconds=120, what="all are over")
    assert not Lease.objects.exists()


def test_a_drill_reports_whether_training_resumes_and_why_not(user: User, project: Project) -> None:
    asked = {
        (): "DRILL_RESUMES",
        ("starts-over",): "DRILL_FROM_START",
        ("starts-over", "tells-nobody"): "DRILL_NOT_ANNOUNCED",
        ("cannot-read",): "DRILL_CRASHED_AFTER",
        ("never-saves",): "DRILL_NO_CHECKPOINT",
        ("is-short",): "DRILL_ENDED_EARLY",
    }
    tasks = {habits: make(user, project, *habits, minutes=0.05 if "never-saves" in habits else 5) for habits in asked}
    drills = {habits: runs.start_drill_of_task(user, task).pk for habits, task in tasks.items()}
    live()
    found = {habits: Drill.objects.get(pk=drill) for habits, drill in drills.items()}
    assert {habits: drill.report["verdict"]["code"] for habits, drill in found.items()} == asked

    well = presenters.serialize_drill(found[()])
    assert (well["status"], well["verdict"]["level"], well["attempt"]) == ("done", "pass", 2)
    assert (well["rank"], well["node"]) == (1, "gn-well")
    assert well["checkpoint"]["step"] == well["resumedStep"] > 0
    assert well["checkpoint"]["sizeBytes"] == len(str(well["resumedStep"]))
    assert well["stepsLost"] == well["killedStep"] - well["resumedStep"] >= 0
    assert 0 <= well["restartSeconds"] <= well["resumedSeconds"] < 60
    assert "rank 1" in well["verdict"]["message"].lower()  # in either language

    for habits, drill in found.items():
        run = drill.run
        assert run.kind == TaskKind.DRILL
        assert run.attempt == (1 if asked[habits] in ("DRILL_NO_CHECKPOINT", "DRILL_ENDED_EARLY") else 2)
        assert not Path(run.spec["checkpoint_dir"]).exists(), "it lets its checkpoints go"
        said = Event.objects.filter(task=drill.task, kind="drill").order_by("pk").values_list("code", flat=True)
        assert list(said) == ["DRILL_BEGAN", asked[habits]]
    assert not Task.trainings.exclude(pk__in=[task.pk for task in tasks.values()]).exists()


@pytest.mark.database
def test_a_task_starts_only_after_a_successful_drill(user: User, project: Project) -> None:
    well, bad = (make(user, project, *habits, state=TaskState.QUEUED) for habits in ((), ("starts-over",)))
    for task in (well, bad):
        Task.objects.filter(pk=task.pk).update(spec={**task.spec, "drill": "on"})
    begun: list[str] = []

    def both_are_known() -> bool:
        are_over = advance_tasks()
        if Task.objects.get(pk=well.pk).state == TaskState.RUNNING and not begun:
            begun.append(Drill.objects.get(task=well).report["verdict"]["code"])
            Task.objects.filter(pk=well.pk).update(stop_requested_at=now())
        return are_over

    until(both_are_known, seconds=120, what="both are known")
    assert begun == ["DRILL_RESUMES"]
    bad.refresh_from_db()
    assert (bad.state, bad.reason, bad.attempt) == (TaskState.FAILED, "DRILL_FAILED", 0)
    assert bad.reason_params["cause"] == "DRILL_FROM_START"
