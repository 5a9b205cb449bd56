"""The runner of a Slurm task by itself, as a process: what it finds out on its own machine."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fermi.runner import disk_space, exit_codes, files, node, slurm
from tests.platform_process import free_port

PLATFORM = Path(node.__file__).parents[2]


def run(folder: Path, nodes: int, port: int) -> tuple[int, dict[str, Any]]:
    """Exit code and last status of the head's runner of a job with one rank per node."""
    order = {"name": "task-x-1", "nodes": nodes, "names": ["a", "b"], "hosts": [], "port": port, "files": {}}
    (folder / "order.json").write_text(json.dumps(order))
    (folder / "node-0.json").write_text(json.dumps(spec(folder, port)))
    env = {**os.environ, "PYTHONPATH": str(PLATFORM), "SLURM_PROCID": "0", "FERMI_HEAD": "127.0.0.1"}
    ended = subprocess.run([sys.executable, "-m", "fermi.runner.slurm", str(folder)], env=env, timeout=60, check=False)
    return ended.returncode, files.read_json(str(folder / "node-0.status.json"))


def spec(folder: Path, port: int) -> dict[str, Any]:
    return {
        "name": "task-x-1", "node_rank": 0, "node": "a", "command": [sys.executable, "-c", "pass"], "cwd": str(folder),
        "env": {}, "stop_signal": "SIGTERM", "grace_seconds": 30, "port": port,
        "ranks": [{"rank": 0, "local_rank": 0, "env": {}, "log": str(folder / "0.log")}],
    }  # fmt: skip


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_busy_port_is_named_with_its_holder_and_no_rank_starts(tmp_path: Path, nodes: int) -> None:
    """Whether the nodes were to meet there before, or rank 0 alone was to listen."""
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        code, status = run(tmp_path, nodes, port)
    assert (code, status["state"], status["ranks"][0]["pid"]) == (exit_codes.NO_RANK_STARTED, "exited", None)
    assert (status["cause"]["code"], status["cause"]["port"]) == ("MASTER_PORT_TAKEN", port)
    assert status["cause"]["holder"].startswith(f"pid {os.getpid()} (")


def test_a_free_port_is_no_cause(tmp_path: Path) -> None:
    code, status = run(tmp_path, 1, free_port())
    assert (code, status["cause"]) == (0, None)


@pytest.mark.parametrize("own", ["", "10.0.0.1:5000"])
def test_ranks_get_an_address_for_nccl_s_ras_unless_the_task_has_one(tmp_path: Path, own: str) -> None:
    told = spec(tmp_path, free_port())
    told["command"] = [sys.executable, "-c", "import os; print(os.environ['NCCL_RAS_ADDR'])"]
    told["env"] = {"NCCL_RAS_ADDR": own} if own else {}
    (tmp_path / "node-0.json").write_text(json.dumps(told))
    runner = "import sys; from fermi.runner import node; node.main(sys.argv[1], {})"
    env = {name: value for name, value in os.environ.items() if name != "NCCL_RAS_ADDR"} | {"PYTHONPATH": str(PLATFORM)}
    subprocess.run([sys.executable, "-c", runner, str(tmp_path / "node-0.json")], env=env, timeout=60, check=True)
    said = (tmp_path / "0.log").read_text().strip()
    assert said == own or (not own and said.startswith("127.0.0.1:"))


def test_a_full_disk_is_recorded_next_to_the_usual_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = files.RunnerPaths(str(tmp_path / "node-0.json"))
    runner = slurm.build_node(spec(tmp_path, free_port()), paths)
    runner.ranks[0].update(state="exited", exit_code=1, ended_at=100.0)
    monkeypatch.setattr(disk_space, "find_full_disk", lambda _: {"path": "/scratch", "free": 0, "total": 1})
    runner.record_disk_cause()
    assert runner.status["cause"] == {"code": "DISK_FULL", "path": "/scratch", "free": 0, "total": 1, "rank": 0}


def test_a_job_stopped_before_its_rendezvous_starts_no_rank(tmp_path: Path) -> None:
    (tmp_path / "stop.json").write_text('{"grace_seconds": 0}')
    code, status = run(tmp_path, 2, free_port())
    assert (code, status["state"], status["asked"]) == (slurm.ENDED_EARLY, "exited", "")
    assert status["ranks"][0]["pid"] is None
