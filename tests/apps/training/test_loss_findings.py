"""A loss that goes bad, printed by real processes on this machine: what is found, and what follows from it."""

from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import Project, User
from apps.clusters import selectors
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, Lease
from apps.common.clock import now
from apps.training.core import checkpoint_choice, task_store
from apps.training.core.checkpoint_choice import DivergedAttempt, SavedCheckpoint
from apps.training.logs.ingest import LogReader
from apps.training.models import Event, Finding, Task
from apps.training.reconcile import reconciler
from apps.training.states import FINAL_STATES, STATES_WITH_ATTEMPT, TaskState
from fermi import messages
from fermi.jobs.spec import Entrypoint, JobSpec
from tests.platform_process import free_port
from tests.polling import until

pytestmark = pytest.mark.django_db(transaction=True)

SCRIPT = """
import json, os, signal, sys
from pathlib import Path
bad_at, last_bad_attempt, every = map(int, sys.argv[1:])
bad = int(os.environ["FERMI_ATTEMPT"]) <= last_bad_attempt
resume_from = os.environ["FERMI_RESUME_FROM"]
done = int(Path(resume_from).read_text()) if resume_from else 0
for step in range(done + 1, 31):
    print(json.dumps({"step": step, "loss": float("nan") if bad and step >= bad_at else 1 / step}), flush=True)
    if step % every == 0:
        path = Path(os.environ["FERMI_CHECKPOINT_DIR"], f"{step}.pt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(step))
        print(json.dumps({"event": "checkpoint", "step": step, "path": str(path)}), flush=True)
if bad and sys.argv[1] != "0":
    signal.pause()
"""


@pytest.fixture
def task(user: User, settings: Any, tmp_path: Path) -> Task:
    settings.DATA_DIR = tmp_path
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "diverges.py").write_text(SCRIPT)
    project, cluster = Project.objects.create(name="p"), Cluster.objects.create(name="c", backend="local")
    zone = AvailabilityZone.objects.create(name="z")
    environment = DevEnvironment.objects.create(id="env", name="gn1", project=project, cluster=cluster, zone=zone)
    job = JobSpec(
        "task-x", "pytorch-ddp", tuple(selectors.build_nodes([environment])), "env", master_port=free_port(),
        entrypoint=Entrypoint("diverges.py"), checkpoint_dir=str(tmp_path / "checkpoints" / "task-x"),
        env={"PYTHONHASHSEED": "0"}, max_restarts=9,
    )  # fmt: skip
    task = Task.objects.create(
        id="task-x", project=project, owner=user, cluster=cluster, name="t", framework=job.framework, request={},
        state=TaskState.QUEUED, state_since=now(), due_at=now(), created_at=now(), **task_store.build_job_columns(job),
    )  # fmt: skip
    task_store.store_nodes(task, job)
    return task


def lives(task: Task, on_bad_loss: str, bad_at: int, last_bad_attempt: int, every: int = 5) -> Task:
    """To its end, watched."""
    task.spec["on_bad_loss"] = on_bad_loss
    task.spec["entrypoint"]["args"] = [str(bad_at), str(last_bad_attempt), str(every)]
    task.save()

    def is_over() -> bool:
        Task.objects.exclude(state__in=FINAL_STATES).update(due_at=now(), claimed_at=None)
        reconciler.reconcile_tasks(task.pk)
        task.refresh_from_db()
        if task.state in STATES_WITH_ATTEMPT:
            LogReader(task, task.attempt).read()
        return task.state in FINAL_STATES

    until(is_over, seconds=120, what="the task is over")
    assert not Lease.objects.exists()
    return task


def events(task: Task) -> list[str]:
    return list(Event.objects.filter(task=task).order_by("pk").values_list("code", flat=True))


def resumed_from(task: Task) -> list[str]:
    return [Path(attempt.resume_from).name for attempt in task.attempts.all()]


def test_a_bad_loss_is_reported_once_with_its_points_and_the_task_continues(task: Task) -> None:
    task = lives(task, "report", 0, 1)
    assert task.state == TaskState.SUCCEEDED
    found = Finding.objects.get(task=task)
    assert (found.code, found.level, found.attempt, found.until) == ("LOSS_NOT_FINITE", "fail", 1, None)
    assert found.params == {"metric": "loss", "step": 1, "good": None, "count": 3}
    assert "step 3: loss is not finite" in found.evidence[0]["lines"]
    assert events(task).count("LOSS_NOT_FINITE") == 1
    assert "from step 1 on" in messages.render_text(found.code, "en", **found.params)[0]


def test_a_stop_ends_the_task_and_a_user_can_resume_from_before(task: Task) -> None:
    task = lives(task, "stop", 12, 1)
    assert (task.state, task.reason, task.attempt) == (TaskState.FAILED, "BAD_LOSS", 1)
    said, _ = messages.render_text(task.reason, "en", **task.reason_params)
    assert said == "The loss is NaN or infinite from step 12 on."
    assert Path(checkpoint_choice.find_newest_checkpoint(task) or "").name == "10.pt"


def test_a_rollback_resumes_from_the_newest_checkpoint_before_the_first_bad_step(task: Task) -> None:
    task = lives(task, "rollback", 12, 1)
    assert (task.state, task.reason) == (TaskState.SUCCEEDED, "COMPLETED")
    assert resumed_from(task) == ["", "10.pt"]
    back = Event.objects.get(task=task, code="ROLLED_BACK").params
    folder = task.spec["checkpoint_dir"]
    skipped = ", ".join(f"{folder}/{step}.pt" for step in (30, 25, 20, 15))
    assert back == {"path": f"{folder}/10.pt", "step": 12, "skipped": skipped}


def test_after_two_rollbacks_to_the_same_checkpoint_the_task_fails(task: Task) -> None:
    task = lives(task, "rollback", 12, 9)
    assert (task.state, task.reason) == (TaskState.FAILED, "BAD_LOSS")
    assert resumed_from(task) == ["", "10.pt", "10.pt"]


def test_without_an_earlier_checkpoint_it_starts_over_and_says_so(task: Task) -> None:
    task = lives(task, "rollback", 4, 1)
    assert (task.state, resumed_from(task)) == (TaskState.SUCCEEDED, ["", ""])
    assert "ROLLED_BACK_TO_START" in events(task)


def test_checkpoints_after_the_last_good_step_are_bad_unless_rewritten() -> None:
    saved = [
        SavedCheckpoint("30", 2, 30),
        SavedCheckpoint("20", 1, 20),
        SavedCheckpoint("15", 3, 15),
        SavedCheckpoint("12", 2, 12),
        SavedCheckpoint("10", 1, 10),
    ]
    assert checkpoint_choice.find_diverged_checkpoints([DivergedAttempt(2, 13, 10)], saved) == {"30", "20", "12"}
    assert checkpoint_choice.find_diverged_checkpoints(
        [DivergedAttempt(1, 13, 12), DivergedAttempt(2, 25, 24)], saved
    ) == {"30", "20"}
    assert checkpoint_choice.find_diverged_checkpoints([DivergedAttempt(3, 13, None)], saved) == {"30", "20", "15"}
