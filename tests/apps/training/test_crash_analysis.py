"""Scripts that fail, on the real local engine: the reason names rank, node, exception and line, and what is known of
it; the same again at the same step ends the task."""

from dataclasses import asdict
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import Project, User
from apps.clusters import selectors
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment
from apps.code import store
from apps.common.clock import now
from apps.training.core import task_store
from apps.training.models import Attempt, DiagnosisRules, Finding, Task
from apps.training.presenters import task_presenter
from apps.training.reconcile import crash_analysis, reconciler
from apps.training.states import FINAL_STATES, TaskState
from fermi.jobs import snapshot
from fermi.jobs.spec import Code, Entrypoint, JobSpec
from tests.platform_process import free_port
from tests.polling import until

pytestmark = pytest.mark.django_db(transaction=True)

SCRIPT = """
import os, sys, time

def forward(shape):
    raise ValueError(f"bad shape {shape}")

rank, what = int(os.environ["RANK"]), sys.argv[1]
if what == "shape":
    if rank == 0:
        print('{"step": 12, "loss": 1.0}', flush=True)
        open("at-step-12", "w").close()
    if rank == 1:
        while not os.path.exists("at-step-12"):  # as in a collective: nobody is further than the slowest rank
            time.sleep(0.01)
        os.remove("at-step-12")
        forward((4, 7))
    time.sleep(0.5)
    raise RuntimeError("[../gloo/transport/tcp/pair.cc:535] Connection closed by peer [127.0.0.1]:4711")
if what == "left":
    if rank == 1:
        sys.exit(0)
    time.sleep(0.5)
    raise RuntimeError("[../gloo/transport/tcp/pair.cc:535] Connection closed by peer [127.0.0.1]:4711")
if what == "module":
    import not_there_at_all
if what == "variable":
    os.environ["SLURM_PROCID"]
if what == "input":
    input("continue? [y/n] ")
if what == "debugger":
    breakpoint()
if what == "torch":
    raise AttributeError("module 'torch._C' has no attribute '_cuda_setDevice'")
if what == "file":
    open("data/train.txt")
if what == "background" and rank == 1:
    import subprocess
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "training"], start_new_session=True)
if what == "local":
    from torch.distributed.rendezvous import _create_c10d_store  # the stand-in beside this script
    _create_c10d_store("127.0.0.1", 1, int(os.environ["LOCAL_RANK"]), 2)
if what == "own":
    sys.exit("licence server lic-7 says no: 42 seats are taken")
"""
OWN = """
[NO_SEAT]
lines = ["licence server {server:name} says no: {seats:int} seats"]
message = "All {seats} seats of {server} are taken ({node})."
hint = "Ask the tools team for one."
elsewhere = true
"""


@pytest.fixture
def task(user: User, settings: Any, tmp_path: Path) -> Task:
    """On two nodes of this machine, with a rank each."""
    settings.DATA_DIR = tmp_path
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "train.py").write_text(SCRIPT)
    project, cluster = Project.objects.create(name="p"), Cluster.objects.create(name="c", backend="local")
    zone = AvailabilityZone.objects.create(name="z")
    environments = [
        DevEnvironment.objects.create(
            id=f"env-{number}", name=f"gn{number}", project=project, cluster=cluster, zone=zone, gpu_type="A100",
            gpu_count=1, emulated=True,
        )
        for number in (0, 1)
    ]  # fmt: skip
    job = JobSpec(
        "task-x", "pytorch-ddp", tuple(selectors.build_nodes(environments)), "env-0", master_port=free_port(),
        entrypoint=Entrypoint("train.py"), checkpoint_dir=str(tmp_path), env={"PYTHONHASHSEED": "0"}, max_restarts=3,
    )  # fmt: skip
    task = Task.objects.create(
        id="task-x", project=project, owner=user, cluster=cluster, name="t", framework=job.framework, request={},
        state=TaskState.QUEUED, state_since=now(), due_at=now(), created_at=now(), **task_store.build_job_columns(job),
    )  # fmt: skip
    task_store.store_nodes(task, job)
    return task


def lives(task: Task, what: str, **spec: Any) -> Task:
    """To its end, without the pauses between its attempts."""
    task.spec = {**task.spec, **spec, "entrypoint": {**task.spec["entrypoint"], "args": [what]}}
    task.save()

    def is_over() -> bool:
        Task.objects.exclude(state__in=FINAL_STATES).update(due_at=now(), claimed_at=None)
        reconciler.reconcile_tasks(task.pk)
        task.refresh_from_db()
        return task.state in FINAL_STATES

    until(is_over, seconds=120, what="the task is over")
    return task


def once(task: Task) -> Task:
    """With no second attempt."""
    Task.objects.filter(pk=task.pk).update(max_restarts=0)
    task.refresh_from_db()
    return task


def read_reason(task: Task, lang: str = "en") -> str:
    found = task_presenter.serialize_reason(task.reason, task.reason_params, lang)
    assert found is not None
    return f"{found['message']} {found['hint']}"


def test_the_second_equal_failure_ends_the_task_and_names_rank_node_exception_and_line(task: Task) -> None:
    over = lives(task, "shape")
    assert (over.state, over.reason, over.attempt) == (TaskState.FAILED, "CRASH_LOOP", 2)
    assert "2 times at step 12: Rank 1 on gn1: ValueError: bad shape (4, 7) — train.py:5 in forward." in read_reason(
        over
    )
    assert "ValueError: bad shape (4, 7) — train.py:5 in forward" in read_reason(over, "zh")
    found = Finding.objects.get(task=task, attempt=2)
    assert (found.code, found.level, found.where[0]["node"]) == ("UNCAUGHT_EXCEPTION", "fail", "gn1")
    assert "ValueError: bad shape (4, 7)" in found.evidence[0]["lines"][-1]
    assert {"code": "EDIT_SCRIPT", "params": {"at": "train.py:5 in forward"}} in found.actions


def test_a_rank_that_exited_with_0_is_named_instead_of_its_peers(task: Task) -> None:
    over = lives(task, "left", max_restarts=0)
    assert (over.state, over.reason) == (TaskState.FAILED, "RANK_LEFT_EARLY")
    assert "Rank 1 on gn1 ended with exit code 0 while 1 rank was still running" in read_reason(over)
    assert "rank 1（节点 gn1）以退出码 0 提前结束" in read_reason(over, "zh")
    found = Finding.objects.get(task=task, attempt=1)
    assert (found.level, found.where[0]["rank"]) == ("info", 0), "what its victim tells explains nothing"


def test_a_module_missing_twice_is_a_crash_loop_with_its_facts(
    task: Task,
) -> None:
    over = lives(task, "module")
    assert (over.reason, over.attempt) == ("CRASH_LOOP", 2)
    assert "2 times in a row" in read_reason(over)
    first = task.attempts.get(number=1)
    assert (first.outcome_params["why"], first.outcome_params["at"]) == ("MODULE_MISSING", "train.py:25")
    reason = task_presenter.serialize_reason(first.outcome, first.outcome_params, "en")
    assert reason is not None
    assert "has no module not_there_at_all. Install it" in reason["hint"]
    assert Finding.objects.get(task=task, attempt=1).actions[0]["params"]["what"] == "not_there_at_all"


def test_joining_by_local_rank_explains_any_failure(task: Task, tmp_path: Path) -> None:
    folder = tmp_path / "workspace" / "torch" / "distributed"
    folder.mkdir(parents=True)
    for init in (folder, folder.parent):
        (init / "__init__.py").touch()
    (folder / "rendezvous.py").write_text(
        "def _create_c10d_store(host, port, rank, size):\n"
        "    import os, time\n"
        "    if os.environ['RANK'] == '0':\n"
        "        time.sleep(60)\n"
        "    raise RuntimeError('EADDRINUSE')\n"
    )
    over = lives(task, "local", max_restarts=0)
    assert over.state == TaskState.FAILED
    assert "RuntimeError: EADDRINUSE" in read_reason(over)
    assert "LOCAL_RANK restarts from 0 on each node" in read_reason(over)
    found = Finding.objects.get(task=task, attempt=1)
    assert (found.code, found.level, found.params["found"]) == ("LOCAL_RANK_AS_RANK", "fail", "0")


def test_a_script_that_exits_without_training_says_so(task: Task) -> None:
    over = lives(task, "nothing")
    assert (over.state, over.reason) == (TaskState.SUCCEEDED, "COMPLETED_WITHOUT_STEP")
    assert over.attempts.get().outcome == "COMPLETED"
    assert "exited with code 0 on all 2 ranks after" in read_reason(over)
    assert "全部 2 个 rank 都以退出码 0 结束" in read_reason(over, "zh")


@pytest.mark.parametrize("spec", [{"pulse": False}, {"framework": "jax"}])
def test_without_visible_steps_no_statement_about_steps_is_made(task: Task, spec: dict[str, Any]) -> None:
    Task.objects.filter(pk=task.pk).update(framework=spec.get("framework", task.framework))
    task.refresh_from_db()
    assert lives(task, "nothing", **spec).reason == "COMPLETED"


def test_a_project_rule_explains_an_external_failure_and_makes_no_crash_loop(task: Task) -> None:
    DiagnosisRules.objects.create(project=task.project, text=OWN, updated_at=now(), updated_by=task.owner)
    Task.objects.filter(pk=task.pk).update(max_restarts=1)
    task.refresh_from_db()
    over = lives(task, "own")
    assert (over.reason, over.attempt) == ("RANK_FAILED", 2)
    assert "All 42 seats of lic-7 are taken (gn" in read_reason(over)
    assert "Ask the tools team for one." in read_reason(over)


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ("variable", "VARIABLE_NOT_SET", "SLURM_PROCID is not set: ranks are not started by srun"),
        ("input", "NO_STANDARD_INPUT", "ranks have none"),
        ("debugger", "DEBUGGER_IN_SCRIPT", "stopped in a debugger"),
        ("torch", "NODE_WITHOUT_GPU", "are emulated by CPU processes"),
    ],
)
def test_differences_between_ranks_are_reported(task: Task, what: str, code: str, words: str) -> None:
    over = lives(once(task), what)
    assert (over.reason, over.reason_params["why"]) == ("RANK_FAILED", code)
    assert words in read_reason(over)
    assert code not in read_reason(over, "zh")
    assert Finding.objects.get(task=task, attempt=1).code == code


def test_a_file_excluded_by_gitignore_is_reported_with_its_line(task: Task) -> None:
    sent = {"train.py": SCRIPT.encode(), ".gitignore": b"*.pyc\ndata/\n"}
    files = [
        snapshot.SnapshotFile(path, snapshot.PLAIN_MODE, len(text), sha256(text).hexdigest())
        for path, text in sent.items()
    ]
    for one in files:
        store.write_blob(BytesIO(sent[one.path]), one.sha256, one.size)
    manifest = snapshot.serialize_manifest(files)
    store.write_manifest(manifest)
    digest = snapshot.compute_snapshot_id(manifest)
    brought = Code(digest, str(store.ensure_archive(digest)), "off")
    over = lives(once(task), "file", code=asdict(brought))
    assert over.reason_params["why"] == "FILE_MISSING"
    assert "data/train.txt is missing on gn" in read_reason(over)
    assert "the line data/ (.gitignore) excludes it" in read_reason(over)


@pytest.mark.database
def test_training_left_in_the_background_is_reported_although_the_task_succeeded(task: Task) -> None:
    over = lives(task, "background")
    assert over.state == TaskState.SUCCEEDED
    found = Finding.objects.get(task=task, attempt=1)
    assert (found.code, found.level, found.where[0]["node"]) == ("PROCESSES_LEFT_RUNNING", "info", "gn1")
    assert found.params["command"].endswith("time.sleep(600) training")


def ended(number: int, outcome: str = "RANK_FAILED", **params: Any) -> Attempt:
    about = {"rank": 1, "exitCode": 1, **params}
    moment = now()
    return Attempt(number=number, outcome=outcome, outcome_params=about, created_at=moment, ended_at=moment)


VALUE = {"exception": "ValueError: row 17 of 0x7f12", "at": "data.py:5 in load"}
IMPORT = {"exception": "ImportError: no x", "at": "train.py:1"}


@pytest.mark.parametrize(
    ("first", "second", "steps", "loop"),
    [
        (VALUE, VALUE | {"exception": "ValueError: row 99", "rank": 0}, {1: 7, 2: 7}, {"times": 2, "step": 7}),
        (VALUE, VALUE, {1: 7, 2: 8}, {}),
        (VALUE, VALUE, {2: 7}, {}),
        (VALUE, VALUE | {"at": "data.py:6 in load"}, {1: 7, 2: 7}, {}),
        (IMPORT, IMPORT, {}, {"times": 2}),
        (IMPORT, IMPORT | {"exception": "ImportError: no y"}, {}, {}),
        ({}, {}, {1: 7, 2: 7}, {"times": 2, "step": 7}),
        ({}, {"exitCode": 3}, {1: 7, 2: 7}, {}),
        ({}, {}, {}, {}),  # an exit code alone says too little
        # what comes from elsewhere may well pass
        (VALUE | {"why": "NO_SPACE_LEFT"}, VALUE | {"why": "NO_SPACE_LEFT"}, {1: 7, 2: 7}, {}),
        ({"exception": "RuntimeError: Connection closed by peer"},) * 2 + ({1: 7, 2: 7}, {}),
    ],
)  # fmt: skip
def test_equal_failures_are_counted_as_repeated(first: Any, second: Any, steps: Any, loop: Any) -> None:
    assert crash_analysis.count_equal_failures(ended(2, **second), [ended(1, **first)], steps) == loop


@pytest.mark.parametrize(
    ("params", "loop"),
    [
        ({"signal": "SIGKILL"}, {}),  # somebody's kill
        ({"signal": "SIGKILL", "why": "HOST_OUT_OF_MEMORY"}, {}),
        ({"signal": "SIGKILL", "why": "MEMORY_LIMIT_REACHED"}, {"times": 2, "step": 7}),
        ({"signal": "SIGTERM"}, {}),
        ({"signal": "SIGSEGV"}, {"times": 2, "step": 7}),
    ],
)
def test_an_external_kill_makes_no_crash_loop(params: Any, loop: Any) -> None:
    killed = [ended(number, "RANK_KILLED", **{**params, "exitCode": None}) for number in (2, 1)]
    assert crash_analysis.count_equal_failures(killed[0], killed[1:], {1: 7, 2: 7}) == loop


def test_a_lost_node_or_port_makes_no_loop() -> None:
    for outcome in ("NODE_LOST", "MASTER_PORT_TAKEN", "PREEMPTED", "DISK_FULL", "RUNNER_LOST"):
        assert crash_analysis.count_equal_failures(ended(2, outcome), [ended(1, outcome)], {1: 7, 2: 7}) == {}


def test_an_attempt_that_saved_or_ran_long_is_no_early_failure() -> None:
    first, second = ended(1, **IMPORT), ended(2, **IMPORT)
    assert crash_analysis.count_equal_failures(second, [first], {}, frozenset({2})) == {}
    second.created_at -= 2 * crash_analysis.MAX_STEPLESS_DURATION
    assert crash_analysis.count_equal_failures(second, [first], {}) == {}
