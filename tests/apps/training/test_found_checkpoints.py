"""Restarts, retries and drills of scripts that know nothing of the platform, real processes on this machine: what they
save is found, and a rule says how they take it."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import Project, User
from apps.clusters import selectors
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment
from apps.common.clock import now
from apps.training.core import checkpoint_choice, task_store
from apps.training.drills import runs
from apps.training.models import Checkpoint, CheckpointSource, Drill, Task
from apps.training.presenters import checkpoint_marks
from apps.training.services import diagnosis
from apps.training.states import FINAL_STATES, TaskState
from fermi.jobs.spec import Entrypoint, JobSpec, ResumeRule
from tests.apps.task_passes import advance_tasks
from tests.platform_process import free_port
from tests.polling import until

pytestmark = pytest.mark.django_db(transaction=True)

SCRIPT = """
import argparse, json, os, pickle, signal, struct, sys, time, zipfile
from pathlib import Path

def save_torch(path, **state):  # as torch.save does, without importing torch
    with zipfile.ZipFile(f"{path}.tmp", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"model": {"a.weight": 0}, **state}, protocol=2))
    os.rename(f"{path}.tmp", path)

def load_torch(path):
    with zipfile.ZipFile(path) as archive:
        return pickle.loads(archive.read("archive/data.pkl"))

def save_safetensors(path):
    header = json.dumps({"w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(1))

parser = argparse.ArgumentParser()
parser.add_argument("--manner")
parser.add_argument("--out_dir", type=Path)
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--crash", action="store_true")
parser.add_argument("--announce", action="store_true")
parser.add_argument("--table", action="store_true")
parser.add_argument("--init_from", default="scratch")
parser.add_argument("--resume_from_checkpoint", type=Path)
parser.add_argument("--load", type=Path)
args = parser.parse_args()
out, rank, manner = args.out_dir, int(os.environ["RANK"]), args.manner
out.mkdir(parents=True, exist_ok=True)

def save(step):
    if manner == "nanogpt":
        save_torch(out / "ckpt.pt", optimizer={}, iter_num=step)
    elif manner == "trainer":
        folder = out / f"checkpoint-{step}"
        folder.mkdir()
        save_safetensors(folder / "model.safetensors")
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
        for old in sorted(out.glob("checkpoint-*"), key=lambda one: int(one.name[11:]))[:-2]:
            for file in old.iterdir():
                file.unlink()
            old.rmdir()
    elif manner == "lightning":
        save_torch(out / f"epoch=0-step={step}.ckpt", **{"pytorch-lightning_version": "2", "global_step": step})
    elif manner == "dcp":
        folder = out / f"step-{step}"
        folder.mkdir()
        (folder / "__0_0.distcp").write_bytes(b"data")
        (folder / ".metadata.tmp").write_bytes(b"metadata")
        (folder / ".metadata.tmp").rename(folder / ".metadata")
    elif manner == "deepspeed":
        folder = out / f"global_step{step}"
        folder.mkdir()
        (folder / "mp_rank_00_model_states.pt").write_bytes(b"states")
        (out / "latest").write_text(folder.name)

def load():
    if manner == "nanogpt":
        return load_torch(out / "ckpt.pt")["iter_num"] if args.init_from == "resume" else 0
    if manner == "deepspeed":
        return int((args.load / "latest").read_text()[11:]) if args.load else 0
    path = args.resume_from_checkpoint
    if path is None:
        return 0
    if manner == "trainer":
        return json.loads((path / "trainer_state.json").read_text())["global_step"]
    if manner == "lightning":
        return load_torch(path)["global_step"]
    assert (path / ".metadata").exists()
    return int(path.name[5:])

def has_saved():
    return any(out.glob("*.pt")) or any(out.glob("*/.metadata")) or any(out.glob("*/trainer_state.json")) or any(
        out.glob("*.ckpt")) or (out / "latest").exists()

done = load()
if rank == 1 and args.crash and not (out / "crashed").exists():
    while not has_saved():
        time.sleep(0.01)
    (out / "crashed").touch()
    os.kill(os.getpid(), signal.SIGKILL)
for step in range(done + 1, args.steps + 1):
    if rank == 0:
        print(f"iter {step}: loss {1 / step:.4f}, time 1.00ms", flush=True)
        if step % 20 == 0:
            save(step)
            if args.announce:
                event = {"event": "checkpoint", "step": step, "path": str(out / "ckpt.pt"), "val_loss": 1 / step}
                print(json.dumps(event), flush=True)
        if args.table:
            with open(out / "metrics.csv", "a") as table:
                print("step,accuracy" if step == 1 else f"{step},{step / 1000}", file=table)
    time.sleep(0.02)
"""

RULES = {
    "nanogpt": ResumeRule(("--init_from=resume",)),
    "trainer": ResumeRule(("--resume_from_checkpoint", "{path}")),
    "lightning": ResumeRule(("--resume_from_checkpoint={folder}/{name}",)),
    "dcp": ResumeRule(("--resume_from_checkpoint", "{path}"), {"RESUME_STEP": "{step}"}),
    "deepspeed": ResumeRule(("--load", "{folder}")),
}
LAYOUTS = {
    "nanogpt": "torch", "trainer": "transformers", "lightning": "lightning", "dcp": "dcp", "deepspeed": "deepspeed"
}  # fmt: skip


@pytest.fixture
def project(user: User, settings: Any, tmp_path: Path) -> Project:
    settings.DATA_DIR = tmp_path
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "train.py").write_text(SCRIPT)
    Cluster.objects.create(name="c", backend="local")
    AvailabilityZone.objects.create(name="z")
    return Project.objects.create(name="p")


def make(
    user: User,
    project: Project,
    manner: str,
    *args: str,
    rule: ResumeRule | None = None,
    state: TaskState = TaskState.QUEUED,
    restarts: int = 1,
) -> Task:
    """With two ranks on an environment of its own."""
    cluster, zone = Cluster.objects.get(), AvailabilityZone.objects.get()
    name = f"{manner}{DevEnvironment.objects.count()}"
    environment = DevEnvironment.objects.create(
        id=f"env-{name}", name=f"gn-{name}", project=project, cluster=cluster, zone=zone, gpu_type="A100", gpu_count=2,
        emulated=True,
    )  # fmt: skip
    words = ("--manner", manner, "--out_dir={checkpoint_dir}/out", *args)
    job = JobSpec(
        f"task-{name}", "pytorch-ddp", tuple(selectors.build_nodes([environment])), environment.pk,
        master_port=free_port(), entrypoint=Entrypoint("train.py", words, resume=rule), project=project.pk,
        checkpoint_dir=str(project_folder(project, name)), max_restarts=restarts, grace_seconds=5.0,
    )  # fmt: skip
    over = state in FINAL_STATES
    task = Task.objects.create(
        id=job.task_id, project=project, owner=user, cluster=cluster, name=name, framework=job.framework, request={},
        state=state, state_since=now(), due_at=None if over else now(), created_at=now(),
        **task_store.build_job_columns(job),
    )  # fmt: skip
    task_store.store_nodes(task, job)
    return task


def project_folder(project: Project, name: str) -> Path:
    from django.conf import settings

    return Path(settings.DATA_DIR) / "checkpoints" / f"task-{name}"


def first_step(task: Task, attempt: int) -> int:
    return min(task.metrics.filter(attempt=attempt, rank=0).values_list("step", flat=True))


def test_scripts_that_know_nothing_of_the_platform_go_on_after_a_rank_was_killed(user: User, project: Project) -> None:
    tasks = {manner: make(user, project, manner, "--crash", rule=rule) for manner, rule in RULES.items()}
    until(advance_tasks, seconds=120, what="all are over")
    for manner, task in tasks.items():
        task.refresh_from_db()
        assert (task.state, task.attempt) == (TaskState.SUCCEEDED, 2), (manner, task.reason, task.reason_params)
        second = task.attempts.get(number=2)
        saved = Checkpoint.objects.filter(task=task, attempt=1).order_by("-step").first()
        newest = Checkpoint.objects.filter(task=task).order_by("-step").first()
        assert newest is not None
        assert (newest.step, newest.source, newest.layout) == (140, CheckpointSource.RUNNER, LAYOUTS[manner])
        assert second.resume_from, manner
        if saved:  # not overwritten by the second attempt, as ckpt.pt is
            assert second.resume_from == saved.path
            assert first_step(task, 2) == saved.step + 1
        assert first_step(task, 2) > 20
        assert first_step(task, 2) % 20 == 1
    row = {"path": newest.path, "step": newest.step, "valLoss": None, "nodes": newest.nodes, "complete": True}
    assert checkpoint_marks.mark_row(row, checkpoint_marks.find_marks(task))["newest"]


def test_a_retry_resumes_from_what_was_found_and_not_from_what_the_script_deleted(user: User, project: Project) -> None:
    task = make(user, project, "trainer", "--steps", "100", rule=RULES["trainer"])
    until(advance_tasks, seconds=120, what="it is over")
    path, skipped = checkpoint_choice.choose_resume_path(task)
    assert (Path(path).name, skipped) == ("checkpoint-100", [])
    for file in Path(path).iterdir():
        file.unlink()
    Path(path).rmdir()
    assert Path(checkpoint_choice.choose_resume_path(task)[0]).name == "checkpoint-80"


def test_drills_say_whether_such_scripts_resume(user: User, project: Project) -> None:
    asked = {"nanogpt": RULES["nanogpt"], "lightning": RULES["lightning"], "trainer": None}
    drills = {}
    for manner, rule in asked.items():
        task = make(user, project, manner, "--steps", "100000", rule=rule, state=TaskState.STOPPED)
        drills[manner] = runs.start_drill_of_task(user, task, minutes=2).pk
    until(advance_tasks, seconds=180, what="all are over")
    codes = {manner: Drill.objects.get(pk=key).report["verdict"]["code"] for manner, key in drills.items()}
    assert codes == {"nanogpt": "DRILL_RESUMES", "lightning": "DRILL_RESUMES", "trainer": "DRILL_FROM_START"}


def test_a_script_that_cannot_resume_is_told_of_with_what_would_be_lost(user: User, project: Project) -> None:
    tasks = {
        "nothing": make(user, project, "silent", "--steps", "10", restarts=0),
        "found": make(user, project, "nanogpt", "--steps", "30", restarts=0),
        "rule": make(user, project, "nanogpt", "--steps", "30", rule=RULES["nanogpt"], restarts=0),
        "placeholder": make(user, project, "silent", "--steps", "10", "--init_from={resume_from}", restarts=0),
    }
    until(advance_tasks, seconds=120, what="all are over")
    Task.objects.all().update(state=TaskState.FAILED)
    points = {name: checkpoint_choice.find_resume_point(Task.objects.get(pk=one.pk)) for name, one in tasks.items()}
    told = {name: (point.knows_how, point.step) for name, point in points.items() if point}
    assert told == {"nothing": (False, None), "found": (False, 20), "rule": (True, 20), "placeholder": (True, None)}
    assert points["found"]
    assert points["found"].seconds
    assert points["found"].seconds > 0
    tasks["found"].attempts.update(running_at=now() - timedelta(hours=3, minutes=10), ended_at=None)
    told = diagnosis.diagnose_task(user, Task.objects.select_related("cluster").get(pk=tasks["found"].pk))
    [(stored, actions)] = [one for one in told.findings if one[0].finding.code == "RESTART_BEGINS_ANEW"]
    assert stored.finding.params["step"] == "20"
    assert [one.action.params["to"] for one in actions] == ["--resume_from_checkpoint {path}"], "as its text declares"


def test_an_attempt_that_ignored_the_checkpoint_says_what_was_lost(user: User, project: Project) -> None:
    task = make(user, project, "nanogpt", "--crash", "--steps", "60")
    until(advance_tasks, seconds=120, what="it is over")
    task = Task.objects.select_related("cluster").get(pk=task.pk)
    assert (task.attempt, first_step(task, 2)) == (2, 1)
    told = diagnosis.diagnose_task(user, task)
    [found] = [one.finding for one, _ in told.findings if one.finding.code == "BEGAN_ANEW"]
    reached = task.metrics.filter(attempt=1, rank=0).order_by("-step").values_list("step", flat=True)[0]
    assert (found.params["lost"], found.params["before"]) == (str(reached), 1)


def test_what_the_script_announces_wins_over_what_is_found(user: User, project: Project) -> None:
    task = make(user, project, "nanogpt", "--steps", "45", "--announce", restarts=0)
    until(advance_tasks, seconds=120, what="it is over")
    row = Checkpoint.objects.get(task=task)
    assert (row.step, row.source, row.layout, row.val_loss) == (40, CheckpointSource.SCRIPT, "", 1 / 40)
    assert not task.events.filter(code="CHECKPOINT_FOUND").exists()


def test_values_in_files_are_points_of_the_task_and_the_best_checkpoint_is_marked(user: User, project: Project) -> None:
    task = make(user, project, "lightning", "--steps", "45", "--table", restarts=0)
    until(advance_tasks, seconds=120, what="it is over")
    found = task.metrics.filter(source="file").order_by("step").values_list("step", "values")
    assert list(found) == [(step, {"accuracy": step / 1000}) for step in range(2, 46)]
    task.metrics.filter(step=40).update(values={"val_loss": 2.0})
    task.metrics.filter(step=20).update(values={"val_loss": 1.0})
    marks = checkpoint_marks.find_marks(task)
    assert (Path(marks.newest).name, Path(marks.best).name) == ("epoch=0-step=40.ckpt", "epoch=0-step=20.ckpt")
    assert task.events.filter(code="CHECKPOINT_FOUND").count() == 2
