"""Scripts that were written for somewhere else, boiled down: each runs, or its failure says what is different here.

A folder in `cases/` for each. Where `../shared/cases` is there, its scripts of the same names run instead of these, so
both have to end alike.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.platform_process import ROOT, WARM, Running
from tests.polling import until

pytestmark = pytest.mark.e2e

OWN, SHARED = Path(__file__).with_name("cases"), ROOT.parent / "shared" / "cases"
TWO_NODES, ONE_NODE = "--env env-001 --env env-002", "--env env-003"
ONE_RANK, TWO_RANKS = "--env env-005 --world-size 1", "--env env-005 --world-size 2"


@dataclass(frozen=True)
class Ended:
    """`task` is empty where the submission was refused; `said`: all that a person is told, without logs."""

    task: dict[str, Any]
    said: str
    logs: list[str]

    @property
    def status(self) -> str:
        return str(self.task.get("status", "refused"))


@dataclass(frozen=True)
class Case:
    """`words`: of `fermi submit`. `waits`: what is not there yet."""

    words: str
    holds: Callable[[Ended], object]
    waits: str = ""


def failed(code: str, *words: str, never: tuple[str, ...] = ()) -> Callable[[Ended], None]:
    """`words` are said of it, and `never` are not."""

    def holds(ended: Ended) -> None:
        assert ended.status == "failed", ended
        assert [word for word in (code, *words) if word not in ended.said] == []
        assert [word for word in never if word in ended.said] == []

    return holds


def raised(exception: str) -> Callable[[Ended], None]:
    def holds(ended: Ended) -> None:
        assert ended.status == "failed"
        assert exception in ended.task["reason"]["message"]
        assert "SignalException" not in ended.said

    return holds


def printed(text: str, ranks: int) -> Callable[[Ended], None]:
    """Each rank did, and the task succeeded."""

    def holds(ended: Ended) -> None:
        assert ended.status == "succeeded", ended
        assert sum(text in log for log in ended.logs) == ranks == len(ended.logs), ended.logs

    return holds


def joined(ended: Ended) -> None:
    """All four, whatever each of them prints of it."""
    assert ended.status == "succeeded", ended
    assert len(ended.logs) == 4
    numbers = sorted(int(word) for log in ended.logs for word in log.split() if word.isdecimal())
    assert {0, 1, 2, 3, 4} <= {*numbers}


def refused(text: str) -> Callable[[Ended], None]:
    """When it is submitted."""

    def holds(ended: Ended) -> None:
        assert ended.status == "refused", ended
        assert text in ended.said

    return holds


def got_its_folder(ended: Ended) -> None:
    assert ended.status == "succeeded", ended
    assert any("--out=/" in log for log in ended.logs), ended.logs
    assert not any("{checkpoint_dir}" in log for log in ended.logs)


def trains_whole_or_says_why_not(ended: Ended) -> None:
    trained = ended.status == "succeeded" and all("MEMBER: " in log for log in ended.logs)
    assert trained or "WORLD_SIZE" in ended.said, ended


def starts_processes_itself(ended: Ended) -> None:
    assert ended.status == "succeeded" or "RANKS_STARTED_RANKS" in ended.said, ended
    assert ended.task["attempt"] == 1
    assert "CORDON" not in ended.said


def trains_once_per_node(ended: Ended) -> None:
    assert (ended.status, ended.task["attempt"]) == ("succeeded", 1), ended


def resumes_after_the_loss_of_a_rank(ended: Ended) -> None:
    assert (ended.status, ended.task["attempt"]) == ("succeeded", 2), ended
    for rank, log in enumerate(ended.logs):
        assert f"rank {rank} of 4 begins at 10 with" in log
        assert f"rank {rank} ended at 30" in log
        assert f"rank {3 - rank} of 4" not in log
    assert ["node 0 of 2: 2 ranks, LOCAL_RANK none" in ended.logs[0], "node 1 of 2" in ended.logs[2]] == [True, True]


def has_a_curve(ended: Ended) -> None:
    assert (ended.status, ended.task["step"]) == ("succeeded", 80)


def says_that_nothing_was_trained(ended: Ended) -> None:
    assert ended.status == "succeeded"
    assert "COMPLETED_WITHOUT_STEP" in ended.said


def goes_on_from_its_own_file(ended: Ended) -> None:
    assert (ended.status, ended.task["attempt"]) == ("succeeded", 2)
    assert all("resumed from step 30" in log for log in ended.logs), ended.logs


def keeps_one_line_a_bar(ended: Ended) -> None:
    assert ended.status == "succeeded"
    assert "\\r" not in ended.said


GPU_HINTS = ("nstall torch", "ompare the versions", "nstall in")
EMULATED = ("are emulated by CPU processes", "FERMI_BACKEND", "gloo")
CASES: dict[str, Case] = {
    "bash-entry": Case(f"{TWO_NODES} --max-restarts 0 --script run.sh -- --lr 1e-4",
                       refused("run.sh is a shell script, not a Python script")),
    "cuda-emulated": Case(f"{TWO_NODES} --max-restarts 2 --script train.py",
                          failed("NODE_WITHOUT_GPU", *EMULATED, never=GPU_HINTS)),
    "elastic-launch-inside": Case(f"{ONE_NODE} --max-restarts 0 --script train.py",
                                  raised("ValueError: bad batch at step 7")),
    "elastic-launch-inside on two nodes": Case(f"{TWO_NODES} --max-restarts 0 --script train.py",
                                               raised("ValueError: bad batch at step 7")),
    "elastic-launch-inside once per node": Case(f"{ONE_NODE} --max-restarts 0 --processes node --script train.py",
                                                raised("ValueError: bad batch at step 7")),
    "folder-in-args": Case(f"{TWO_NODES} --max-restarts 0 --script env.py -- '--out={{checkpoint_dir}}'",
                           got_its_folder),
    "jax-no-arguments": Case(f"--framework jax {TWO_NODES} --max-restarts 0 --script hello.py", joined),
    "launch-command": Case(
        f"{TWO_NODES} --max-restarts 0 -- MINE=1 python -m torch.distributed.launch --nproc_per_node 2 --master_port 1"
        " 'train it.py' --dist-url tcp://127.0.0.1:1 --text '你 \"好\"'", printed('launched 你 "好" 1', 4),
    ),
    "own-processes": Case(
        f"{TWO_NODES} --max-restarts 0 -- python main.py --multiprocessing-distributed --dist-url tcp://127.0.0.1:1"
        " --world-size 1 --rank 0", printed("joined", 4),
    ),
    "lightning-devices": Case(
        "--env env-001 --env env-003 --max-restarts 0 --script main.py -- fit --trainer.accelerator=cpu "
        "--trainer.strategy=ddp --trainer.devices=auto --trainer.num_nodes=2 --trainer.max_epochs=3",
        trains_whole_or_says_why_not, "" if find_spec("lightning") else "Lightning is not installed here",
    ),
    "missing-in-words": Case(f"{ONE_NODE} --max-restarts 0 --script train.py",
                             failed("MODULE_MISSING", "demo[extra]>=1.2", never=("fix it there",))),
    "module-entry": Case(f"{ONE_NODE} --max-restarts 0 --module pkg.train -- --epochs 3",
                         printed("module ran __main__ pkg", 4)),
    "nccl-emulated": Case(f"{ONE_NODE} --max-restarts 1 --script train.py",
                          failed("NODE_WITHOUT_GPU", *EMULATED, never=GPU_HINTS)),
    "plain-metrics": Case(f"{ONE_NODE} --max-restarts 0 --script train.py", has_a_curve),
    "python-on-path": Case(f"{ONE_RANK} --max-restarts 0 --script train.py", printed("child torch", 1)),
    "quits-without-training": Case(f"{TWO_NODES} --max-restarts 0 --script train.py", says_that_nothing_was_trained),
    "relative-checkpoint": Case(f"{TWO_NODES} --max-restarts 2 --script train.py", goes_on_from_its_own_file),
    "shell-launcher": Case(f"{TWO_NODES} --max-restarts 2 --processes node --command -- bash run.sh --short --killed",
                           resumes_after_the_loss_of_a_rank),
    "slurm-variables": Case(f"{ONE_NODE} --max-restarts 0 --script train.py",
                            failed("VARIABLE_NOT_SET", "SLURM_PROCID is not set", "RANK", "WORLD_SIZE")),
    "spawn-inside": Case(f"{TWO_RANKS} --max-restarts 0 --script train.py", starts_processes_itself),
    "spawn-inside once per node": Case(f"{TWO_RANKS} --max-restarts 0 --processes node --script train.py",
                                       trains_once_per_node),
    "stdin": Case(f"{ONE_RANK} --max-restarts 0 --script train.py", failed("NO_STANDARD_INPUT", "ranks have none")),
    "torchrun-inside": Case(f"{TWO_NODES} --max-restarts 0 --script launch.py", starts_processes_itself),
    "torchrun-inside once per node": Case(f"{TWO_NODES} --max-restarts 0 --processes node --script launch.py",
                                          trains_once_per_node),
    "tqdm-log": Case(f"{TWO_RANKS} --max-restarts 0 --script train.py", keeps_one_line_a_bar),
}  # fmt: skip


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("platform") / "data", **WARM).start()
    yield running
    running.close()


def folder_of(name: str) -> Path:
    """The script's, where it is named with what is special about this run."""
    name = name.partition(" ")[0]
    return next((top / name for top in (SHARED, OWN) if (top / name).is_dir()), OWN / name)


def submit(platform: Running, name: str, words: str) -> subprocess.CompletedProcess[str]:
    folder = folder_of(name)
    if not folder.is_dir():
        pytest.skip(f"there are no scripts for {name}")
    env = {**platform.env, "XDG_CACHE_HOME": str(platform.data.parent), "LANG": "en_US.UTF-8"}
    fixed = ["submit", "--name", "case", "--dataset", "none", "--model", "none", "--code", ".", "-o", "json"]
    command = [sys.executable, "-m", "fermi.cli", *fixed, *shlex.split(words)]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=240, check=False)


def ended(platform: Running, done: subprocess.CompletedProcess[str]) -> Ended:
    if done.returncode:
        return Ended({}, done.stderr, [])
    task_id = json.loads(done.stdout)["taskId"]
    task = platform.until_final(task_id, seconds=240)
    told = platform.get(f"/training-tasks/{task_id}/diagnosis")
    logs = [platform.log(task_id, rank, task["attempt"]) for rank in range(task["worldSize"])]
    return Ended(task, f"{done.stderr}\n{json.dumps([task['reason'], told], ensure_ascii=False)}", logs)


@pytest.mark.parametrize("name", CASES)
def test_a_users_script_runs_or_the_difference_is_explained(platform: Running, name: str) -> None:
    case = CASES[name]
    if case.waits:
        pytest.skip(f"not there yet: {case.waits}")
    case.holds(ended(platform, submit(platform, name, case.words)))


def test_a_question_that_nobody_answers_is_named_while_the_script_waits(platform: Running) -> None:
    done = submit(platform, "asks", f"{ONE_RANK} --max-restarts 0 --script train.py")
    task_id = json.loads(done.stdout)["taskId"]

    def list_codes() -> dict[str, str]:
        found = platform.get(f"/training-tasks/{task_id}/diagnosis")["findings"]
        return {one["code"]: one["level"] for one in found}

    until(lambda: "SCRIPT_ASKED_PASSWORD" in list_codes(), seconds=120)
    assert list_codes() | {"SCRIPT_ASKED": "info", "SCRIPT_ASKED_PASSWORD": "info"} == list_codes()
    platform.api.post(f"/training-tasks/{task_id}/stop").raise_for_status()
    assert platform.until_final(task_id, seconds=60)["status"] == "stopped"


def test_a_second_task_on_the_same_hard_coded_port_names_the_first(platform: Running) -> None:
    first = submit(platform, "two-tasks-one-port", f"{ONE_NODE} --script train.py")
    task_id = json.loads(first.stdout)["taskId"]
    platform.until_state(task_id, "running")
    second = ended(platform, submit(platform, "two-tasks-one-port", f"{TWO_RANKS} --max-restarts 0 --script train.py"))
    assert second.status == "failed"
    assert task_id in second.said
    assert "23456" in second.said


def test_a_stop_reaches_ranks_that_a_shell_script_has_started(platform: Running) -> None:
    words = f"{TWO_NODES} --processes node --command -- bash run.sh"
    task_id = json.loads(submit(platform, "shell-launcher", words).stdout)["taskId"]
    until(lambda: (platform.task(task_id)["step"] or 0) >= 10, what="it trains")

    def list_advancing_ranks() -> list[int]:
        ranks = platform.get(f"/training-tasks/{task_id}/pulses")["ranks"]
        return sorted(one["rank"] for one in ranks if one["step"])

    until(lambda: list_advancing_ranks() == [0, 1, 2, 3], what="all ranks advance")
    platform.api.post(f"/training-tasks/{task_id}/stop")
    assert platform.until_final(task_id)["status"] == "stopped"
    assert ["stopped at" in platform.log(task_id, rank) for rank in range(4)] == [True] * 4
