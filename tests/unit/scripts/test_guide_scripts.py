"""The scripts that guides name, typed as the guides type them."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fermi.train import common, distributed
from scripts import run_distributed
from tests.lazy import lazy_import

train_jax = lazy_import("fermi.train.train_jax")
TRAIN = str(run_distributed.ROOT / "scripts" / "train.py")


def typed(root: Path, folder: Path, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """In a shell of which nothing of the clone is on the path."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(root / words[0]), *words[1:]]
    command = command if words[0].endswith(".sh") else [sys.executable, *command]
    return subprocess.run(command, cwd=folder, env={**own, "FERMI_LANG": "en", **env}, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("words", "launch"),
    [
        ("--mode manual --world-size 4", f"launch --mode manual --world-size 4 -- python {TRAIN}"),
        ("--mode manual --rank 0 --world-size 8", f"launch --mode manual --rank 0 --world-size 8 -- python {TRAIN}"),
        ("--mode create_slurm --num-nodes 2", f"launch --mode create_slurm --num-nodes 2 -- python {TRAIN}"),
        ("--nproc-per-node 2 -- python mine.py", "launch --nproc-per-node 2 -- python mine.py"),
    ],
)
def test_the_launcher_runs_the_training_script_by_default(words: str, launch: str) -> None:
    assert run_distributed.complete_arguments(words.split()) == launch.split()


def test_the_launcher_shows_the_ranks_it_would_start(root: Path, tmp_path: Path) -> None:
    done = typed(root, tmp_path, "scripts/run_distributed.py", "--mode", "manual", "--world-size", "4", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "WORLD_SIZE=4" in done.stdout
    assert "scripts/train.py" in done.stdout


def test_several_nodes_get_one_script_that_starts_all(root: Path, tmp_path: Path) -> None:
    script = "scripts/launch_multi_node.sh"
    done = typed(root, tmp_path, script, "192.168.1.100", "2", "4", "192.168.1.101", DRY_RUN="1")
    assert done.returncode == 0, done.stderr
    assert os.access(tmp_path / "job" / "start-all.sh", os.X_OK)
    written = "".join(path.read_text() for path in (tmp_path / "job").rglob("*") if path.is_file())
    assert {"192.168.1.100", "192.168.1.101"} <= set(
        written.replace('"', " ").replace("'", " ").replace(":", " ").split()
    )
    missing = typed(root, tmp_path, script, "192.168.1.100", "2", "4")
    assert (missing.returncode, "the addresses of the other 1" in missing.stderr) == (2, True)


def test_examples_are_listed_without_a_terminal(root: Path, tmp_path: Path) -> None:
    done = typed(root, tmp_path, "scripts/quick_start_examples.sh", "--list")
    assert (done.returncode, "single-node" in done.stdout) == (0, True), done.stderr


def test_the_environment_test_is_the_preflight_test(root: Path, tmp_path: Path) -> None:
    done = typed(root, tmp_path, "scripts/test_distributed.py", "--help")
    assert (done.returncode, "--nnodes" in done.stdout) == (0, True), done.stderr


def test_the_training_script_divides_the_batch(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[list[str]] = []
    monkeypatch.setattr(train_jax, "main", lambda words: began.append(words) or 0)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setattr(sys, "argv", ["train.py", "--batch_size", "32"])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(root / "scripts" / "train.py"), run_name="__main__")
    assert (left.value.code, began) == (0, [["--batch_is_global", "--batch_size", "32"]])


@pytest.mark.parametrize("script", ["scripts/train.py", "train_distributed.py"])
def test_a_python_without_the_packages_names_the_right_one(root: Path, tmp_path: Path, script: str) -> None:
    done = subprocess.run([sys._base_executable, "-ISc", f"import runpy; runpy.run_path({str(root / script)!r}, "
                           "run_name='__main__')"], cwd=tmp_path, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(f"{Path(script).name}: No module named ")
    assert ".venv/bin/python" in done.stderr


def test_a_process_gets_its_rank(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    found = distributed.init_distributed_environment()
    assert found == {"rank": 0, "world_size": 1, "local_rank": 0, "coordinator": None}


def test_rank_0_logs_everything_and_the_others_problems(tmp_path: Path) -> None:
    code = (
        "import logging, sys; from fermi.train.distributed import init_logging\n"
        "init_logging({'rank': int(sys.argv[1])}); logging.info('going'); logging.warning('slow')"
    )
    said = [
        subprocess.run([sys.executable, "-c", code, rank], capture_output=True, text=True, check=True).stderr
        for rank in ("0", "1")
    ]
    assert ["going" in text for text in said] == [True, False]
    assert "[rank 1]" in said[1]
    assert "slow" in said[1]


def test_each_rank_gets_its_own_reproducible_batch(tmp_path: Path) -> None:
    path = tmp_path / "train.bin"
    np.arange(5000, dtype=np.uint16).tofile(path)
    batches = [distributed.get_distributed_batch(str(path), 7, rank=rank, world_size=2) for rank in (0, 1, 0)]
    assert batches[0].shape == (8, 65)
    assert (batches[0] == batches[2]).all()
    assert not (batches[0] == batches[1]).any(axis=1).all()


@pytest.mark.parametrize("rank", [0, 1])
def test_rank_0_appends_to_the_log_file(rank: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    words = ["--train_data_path=train.bin", f"--log_file={log}"]
    for _ in range(2):
        report = common.Report(train_jax.parse_args(words), rank)
        report.event("started")
        report.metrics(3, loss=2.5)
        report.close()
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    assert [line.get("step", line.get("event")) for line in lines] == ["started", 3, "started", 3][: 4 * (1 - rank)]
    assert capsys.readouterr().out.splitlines() == [json.dumps(line) for line in lines]


def test_an_unwritable_log_file_costs_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = common.Report(train_jax.parse_args(["--train_data_path=train.bin", f"--log_file={tmp_path}"]), 0)
    report.event("started")
    first, second = capsys.readouterr().out.splitlines()
    assert "cannot be used" in first
    assert json.loads(second) == {"event": "started"}


@pytest.mark.parametrize(("name", "task", "log"), [("train", "", True), ("set", "", True), ("train", "task-1", False)])
def test_the_top_level_trainer_keeps_a_log_when_started_by_hand(
    root: Path, name: str, task: str, log: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_ddp = pytest.importorskip("fermi.train.train_ddp", exc_type=ImportError)
    began: list[list[str]] = []
    monkeypatch.setattr(train_ddp, "run_and_exit", lambda _program, words: began.append(words))
    monkeypatch.setattr(sys, "argv", ["train_distributed.py", "--batch_size", "8"])
    monkeypatch.delenv("FERMI_TASK_ID", raising=False)
    if task:
        monkeypatch.setenv("FERMI_TASK_ID", task)
    runpy.run_path(str(root / f"{name}_distributed.py"), run_name="__main__")
    assert began == [[*(["--log_file", "train.log"] if log else []), "--batch_size", "8"]]
    assert train_ddp.parse_args([*began[0], "--train_data_path=train.bin"]).log_file == ("train.log" if log else None)
