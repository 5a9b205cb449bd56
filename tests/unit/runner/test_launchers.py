"""The node runner with a command that starts the node's ranks itself: real launchers, whose ranks are followed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fermi.engines.failure_cause import build_rank_status, find_failure_cause
from fermi.jobs.launchers import build_launcher_env
from fermi.jobs.ranks import place_nodes
from fermi.jobs.spec import resolve
from fermi.runner import files, node
from fermi.runner.late_values import Late
from tests.goldens import job
from tests.platform_process import free_port
from tests.polling import until

TRAIN = """
import os, signal, sys, time
import torch, torch.distributed as dist

def train(end=None):
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    dist.init_process_group("gloo", **({} if "RANK" in os.environ else joins))
    rank = dist.get_rank()
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    print(f"rank {rank} of {dist.get_world_size()}", flush=True)
    step = 0
    while step < int(os.environ.get("STEPS", 5)):
        step += 1
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        flag = torch.tensor([float(bool(stopped))])
        dist.all_reduce(flag)
        print(f"rank {rank} step {step}", flush=True)
        if rank == 1 and step == 3 and "FAIL" in os.environ:
            raise ValueError("bad batch at step 3")
        if "SAVE" in os.environ and rank == 0 and step == 3:
            open(os.environ["FERMI_CHECKPOINT_DIR"] + "/model.pt", "w").write("weights")
        if "HANG" in os.environ and rank == 1 and step == 3:
            time.sleep(600)
        if flag.item():
            print(f"rank {rank} saved", flush=True)
            sys.exit(0)
        time.sleep(0.05)
    dist.destroy_process_group()
"""
MAIN = TRAIN + "\nif __name__ == '__main__':\n    train()\n"
SPAWN = (
    TRAIN.replace("def train(end=None):", "def train(local, count, address):\n    global joins\n"
                  "    joins = dict(rank=local, world_size=count, init_method=address)")
    + """
if __name__ == "__main__":
    import torch.multiprocessing as mp
    print("launcher", flush=True)
    mp.spawn(train, nprocs=2, args=(2, f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}"))
"""
)  # fmt: skip
FORKS = SPAWN.replace("mp.spawn(train, ", "mp.start_processes(train, start_method='fork', ")
ELASTIC = """
import torch.distributed.launcher as launcher

def work(step):
    raise ValueError(f"bad batch at step {step}")

if __name__ == "__main__":
    config = launcher.LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, rdzv_backend="c10d",
                                   rdzv_endpoint="localhost:0", run_id="x", max_restarts=0)
    launcher.elastic_launch(config, entrypoint=work)(7)
"""
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
SHELL = 'set -e\necho "node $NODE_RANK of $NNODES"\ntorchrun "$@"\n'
LAUNCHERS = {
    "torchrun": [*TORCHRUN, "--nproc_per_node=2", "train.py"],
    "torchrun by its variables": [*TORCHRUN, "train.py"],
    "the older module": [sys.executable, "-m", "torch.distributed.launch", "--nproc_per_node=2", "train.py"],
    "a shell script": ["bash", "run.sh", "train.py"],
    "spawn": [sys.executable, "spawn.py"],
    "fork": [sys.executable, "forks.py"],
}


class LauncherRun:
    """One node of a job whose command starts its ranks, with its runner as a process."""

    def __init__(
        self, folder: Path, command: list[str], ranks: int = 2, node_rank: int = 0, first: int = 0, port: int = 0,
        world: tuple[str, ...] = ("env-002",), **changes: Any,
    ) -> None:  # fmt: skip
        self.folder = folder
        folder.mkdir(exist_ok=True)
        for name, text in (
            ("train.py", MAIN), ("spawn.py", SPAWN), ("forks.py", FORKS), ("elastic.py", ELASTIC), ("run.sh", SHELL),
        ):  # fmt: skip
            (folder / name).write_text(text)
        spec = job(*world, master_port=port or free_port())
        known = {Late.HEAD_HOST: "127.0.0.1", Late.FILES_DIR: str(folder), Late.PYTHON: sys.executable}
        at = place_nodes(spec.nodes, spec.master)[node_rank]
        env = {name: resolve(value, known) for name, value in build_launcher_env(spec, at, {}).items()}
        env |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **changes.pop("env", {})}
        content = {
            "name": "task-x-1", "node_rank": node_rank, "processes": "node", "command": command, "cwd": str(folder),
            "env": env, "stop_signal": "SIGTERM", "grace_seconds": 30, "fork": False, "pulse": True,
            "ranks": [
                {"rank": first + n, "local_rank": n, "env": {}, "log": str(folder / f"{first + n}.log")}
                for n in range(ranks)
            ],
            **changes,
        }  # fmt: skip
        self.paths = files.RunnerPaths(str(folder / f"node-{node_rank}.json"))
        Path(self.paths.spec).write_text(json.dumps(content), encoding="utf-8")
        path = os.pathsep.join([str(Path(node.__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "fermi.runner.node", self.paths.spec]
        self.process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path})

    def entries(self) -> list[dict[str, Any]]:
        return list((files.read_json(self.paths.status) or {}).get("ranks", ()))

    def pulses(self) -> dict[int, dict[str, Any]]:
        return {one["rank"]: one for one in (files.read_json(self.paths.pulse) or {}).get("ranks", ())}

    def log(self, rank: int) -> str:
        path = self.folder / f"{rank}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait(self) -> list[dict[str, Any]]:
        self.process.wait(120)
        assert files.read_json(self.paths.status)["state"] == "exited"
        return self.entries()


StartLauncher = Callable[..., LauncherRun]


@pytest.mark.parametrize("name", LAUNCHERS)
def test_ranks_of_a_launcher_have_logs_and_steps_of_their_own(name: str, tmp_path: Path) -> None:
    run = LauncherRun(tmp_path, LAUNCHERS[name])
    entries = run.wait()
    logs = [run.log(0), run.log(1)]
    assert [one["exit_code"] for one in entries] == [0, 0], logs
    assert [one["last_step"] for one in entries] == [5, 5]
    assert not any(one["asked"] or one["error"] for one in entries)
    for rank in (0, 1):
        assert f"rank {rank} of 2" in logs[rank]
        assert f"rank {rank} step 5" in logs[rank]
        assert f"rank {1 - rank} step" not in logs[rank]
    assert len({one["pid"] for one in entries}) == 2


def test_a_command_with_another_interpreter_is_executed_by_that(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "other")], check=True)
    (tmp_path / "prefix.py").write_text("import sys\nprint(sys.prefix)\n")
    for python, prefix in (
        (str(tmp_path / "other" / "bin" / "python"), str(tmp_path / "other")),
        (sys.executable, sys.prefix),
    ):
        run = LauncherRun(tmp_path / str(len(prefix)), [python, str(tmp_path / "prefix.py")], 1, fork=True)
        assert [entry["exit_code"] for entry in run.wait()] == [0], run.log(0)
        assert run.log(0).split() == [prefix]


def test_uneven_nodes_train_together_under_torchrun(tmp_path: Path) -> None:
    port, command, world = free_port(), [*TORCHRUN, "train.py"], ("env-002", "env-001")
    one = LauncherRun(tmp_path / "a", command, 1, 0, 0, port, world, env={"PET_NPROC_PER_NODE": "1"})
    two = LauncherRun(tmp_path / "b", command, 2, 1, 1, port, world, env={"PET_NPROC_PER_NODE": "2"})
    assert [entry["exit_code"] for entry in one.wait() + two.wait()] == [0] * 3, (one.log(0), two.log(1))
    assert ["rank 0 of 3" in one.log(0), "rank 1 of 3" in two.log(1), "rank 2 of 3" in two.log(2)] == [True] * 3


@pytest.mark.parametrize("name", ["torchrun", "a shell script", "spawn"])
def test_a_stop_reaches_the_ranks_which_save(name: str, tmp_path: Path) -> None:
    run = LauncherRun(tmp_path, LAUNCHERS[name], env={"STEPS": "100000"})
    until(lambda: "rank 1 step 3" in run.log(1), what="both train")
    run.process.send_signal(signal.SIGTERM)
    entries = run.wait()
    assert all(one["asked"] for one in entries)
    assert ["rank 0 saved" in run.log(0), "rank 1 saved" in run.log(1)] == [True, True], (run.log(0), run.log(1))


def test_a_launcher_that_ignores_the_stop_is_killed_after_the_grace(tmp_path: Path) -> None:
    words = ["bash", "-c", "trap '' TERM; echo begun; while true; do sleep 1; done"]
    run = LauncherRun(tmp_path, words, grace_seconds=1)
    until(lambda: "begun" in run.log(0), what="it runs")
    run.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert [one["asked"] for one in run.wait()] == [True, True]
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("name", ["torchrun", "a shell script", "spawn"])
def test_the_exception_of_an_inner_rank_is_the_cause(name: str, tmp_path: Path) -> None:
    entries = LauncherRun(tmp_path, LAUNCHERS[name], env={"FAIL": "1"}).wait()
    cause = find_failure_cause([build_rank_status(one, 0) for one in entries], str)
    assert cause, entries
    assert cause.params["rank"] == 1, json.dumps(entries)
    assert cause.params["exception"] == "ValueError: bad batch at step 3"


def test_a_function_that_elastic_launch_runs_is_named_by_its_own_exception(tmp_path: Path) -> None:
    entries = LauncherRun(tmp_path, [sys.executable, "elastic.py"]).wait()
    cause = find_failure_cause([build_rank_status(one, 0) for one in entries], str)
    assert cause, entries
    assert cause.params["exception"] == "ValueError: bad batch at step 7"


def test_an_inner_rank_that_is_killed_is_the_one_that_failed(tmp_path: Path) -> None:
    run = LauncherRun(tmp_path, LAUNCHERS["torchrun"], env={"STEPS": "100000"})
    until(lambda: "rank 1 step 3" in run.log(1) and run.entries()[1]["pid"], what="both train")
    os.kill(run.entries()[1]["pid"], signal.SIGKILL)
    first, second = run.wait()
    assert second["exit_code"] == -signal.SIGKILL
    assert not second["asked"]
    assert first["exit_code"]
    assert first["asked"] or first["error"], "it is a consequence"


def test_ranks_that_the_script_does_not_use_end_with_it(tmp_path: Path) -> None:
    run = LauncherRun(tmp_path, [*TORCHRUN, "--nproc_per_node=1", "train.py"], hang_seconds=5, env={"STEPS": "150"})
    entries = run.wait()
    assert [one["exit_code"] for one in entries] == [0, 0]
    assert entries[1]["pid"] is None
    assert not entries[1]["stalled"]
    assert run.log(1) == ""


def test_a_restart_by_the_launcher_itself_is_followed(tmp_path: Path) -> None:
    run = LauncherRun(
        tmp_path,
        [*TORCHRUN, "--standalone", "--nproc_per_node=2", "--max-restarts=1", "train.py"],
        # a store of its own for each restart: gloo finds the addresses of the ranks before in the shared one
        env={"STEPS": "100000", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
    )
    until(lambda: "rank 1 step 3" in run.log(1) and run.entries()[1]["pid"], what="both train")
    before, logged = run.entries()[1]["pid"], len(run.log(1))
    os.kill(before, signal.SIGKILL)
    until(lambda: run.entries()[1]["pid"] != before, what="the next process is seen")
    # the kill may fall between the two writes of a line: only what follows it counts
    until(lambda: "rank 1 step 3\n" in run.log(1)[logged:], what="it trains again")
    assert [one["state"] for one in run.entries()] == ["running", "running"]
    run.process.send_signal(signal.SIGTERM)
    run.wait()


def test_helpers_that_inherit_a_local_rank_write_no_page(tmp_path: Path) -> None:
    helper = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'print(1)'])\n"
    (tmp_path / "helped.py").write_text(helper + MAIN)
    run = LauncherRun(tmp_path, [*TORCHRUN, "--nproc_per_node=2", "helped.py"])
    assert [one["last_step"] for one in run.wait()] == [5, 5]


def test_in_a_terminal_the_ranks_of_a_launcher_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MAIN)
    path = os.pathsep.join([str(Path(node.__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    port = str(free_port())
    words = ["--rank", "0", "--rank", "1", "--port", port, "--starts-ranks", "--logs", str(tmp_path)]
    command = [*TORCHRUN, "--nproc_per_node=2", f"--master_port={port}", "train.py"]
    ran = subprocess.run(
        [sys.executable, "-m", "fermi.runner.foreground", *words, "--", *command], cwd=tmp_path, check=False,
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ["[rank 0] rank 0 step 5" in ran.stdout, "[rank 1] rank 1 step 5" in ran.stdout] == [True, True], ran.stdout
    assert "rank 1 of 2" in (tmp_path / "1.log").read_text()


def test_inner_ranks_that_hang_are_examined_like_others(tmp_path: Path) -> None:
    run = LauncherRun(tmp_path, LAUNCHERS["torchrun"], hang_seconds=5, env={"STEPS": "100000", "HANG": "1"})

    def stalled() -> list[dict[str, Any]]:
        """What is told of each rank once both wait within their training, and not for the import of PyTorch."""
        told = [one["stalled"] or {} for one in run.entries()]
        return told if [one.get("step") for one in told] == [4, 3] else []

    assert until(stalled, what="both are seen")[1]["at"].startswith("train.py:")
    until(
        lambda: (told := stalled()) and all(one["still"] for one in told), what="both are idle, whatever the launcher"
    )
    entries = run.entries()
    run.process.send_signal(signal.SIGKILL)
    run.process.wait()
    for one in entries:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one["pid"], signal.SIGKILL)


def test_a_drill_kills_the_inner_rank(tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    drilled = {"FERMI_CHECKPOINT_DIR": str(tmp_path / "saved"), "FERMI_DRILL": '{"rank": 1}'}
    run = LauncherRun(tmp_path, LAUNCHERS["torchrun"], env={"STEPS": "100000", "SAVE": "1", **drilled})
    entries = run.wait()
    assert entries[1]["exit_code"] == -signal.SIGKILL, entries
    assert not entries[1]["asked"]
    assert '{"event": "drilled"' in run.log(1)
