"""Start the real platform on temporary data, and the same training by hand."""

import atexit
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from bench import procfs
from bench.temp_platform import make_temp_folder, prepare_database
from fermi.client import Fermi
from fermi.engines.local.launcher import build_training_env
from tests.platform_process import Running, free_port
from tests.polling import until

TRAINER = "fermi.train.train_ddp"


class LivePlatform(Running):
    """A running platform. `choices`: environments by number of processes; 14 is the requirement document's example."""

    def add_environment(self) -> None:
        """Adds an environment with one GPU."""
        wish = {"name": "one-gpu", "projectId": "default", "clusterId": "local", "zone": "local", "gpuType": "A100",
                "gpuCount": 1, "emulated": True}  # fmt: skip
        made = self.api.post("/dev-environments", json=wish).raise_for_status().json()["data"]
        self.choices = {1: [made["id"]], 2: ["env-001"], 14: ["env-001", "env-003", "env-005"]}


@contextmanager
def run_platform(**env: str) -> Iterator[LivePlatform]:
    with make_temp_folder() as data:
        prepare_database(data)
        running = LivePlatform(data, **{"FERMI_LOG_LEVEL": "WARNING", "FERMI_STAND_BY": "1", **env})
        try:
            running.start()
            running.add_environment()
            yield running
        finally:
            running.close()


_shared = ExitStack()
atexit.register(_shared.close)


@cache
def get_shared_platform() -> LivePlatform:
    """Return the platform that all sections share until `close`."""
    return _shared.enter_context(run_platform())


def close_shared_platform() -> None:
    get_shared_platform.cache_clear()
    _shared.close()


def make_client(running: LivePlatform) -> Fermi:
    return Fermi(running.url, (running.data / "token").read_text().strip())


def find_worker(running: LivePlatform) -> int:
    return int(running.processes()["worker"]["pid"])


def wait_for_stand_by(running: LivePlatform) -> int:
    pid = until(lambda: procfs.find_standby(find_worker(running)), seconds=120, what="a process stands by")
    assert pid is not None
    return pid


def read_command(running: LivePlatform, task_id: str) -> list[str]:
    """Return the trainer and its arguments, as they were run on node 0."""
    words = json.loads((running.data / "runs" / f"{task_id}-1" / "node-0.json").read_text())["command"]
    return words[words.index(TRAINER) :]


def run_torchrun(words: list[str], processes: int, log: Path) -> "subprocess.Popen[bytes]":
    """Run the same trainer with the same arguments and environment, started the way people do by hand. It gets a
    session of its own, as the platform's processes have: Linux shares the processor among sessions first."""
    words = [*words, "--checkpoint_dir", str(log.with_suffix(".checkpoints"))]
    launcher = ["-m", "torch.distributed.run", f"--nproc_per_node={processes}", f"--master_port={free_port()}", "-m"]
    env = {**build_training_env(), "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": "", "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, *launcher, *words], env=env, cwd=log.parent, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip


def read_first_step(log: Path) -> float | None:
    """Return when an attempt's first optimizer step ended, in unix seconds, from rank 0's first line of metrics."""
    if not log.exists():
        return None
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith('{"step": ') and line.endswith("}"):
            return float(json.loads(line)["time"])
    return None


def wait_for_first_step(log: Path, began: float, seconds: float = 180) -> float:
    """Return the seconds from `began` to the first step."""
    size = -1

    def grown() -> float | None:
        """Reads what has come alone: who asks takes the processor from what is measured, and it says its own time."""
        nonlocal size
        before, size = size, log.stat().st_size if log.exists() else -1
        return read_first_step(log) if size != before else None

    done = until(grown, seconds=seconds, what=f"the first step in {log}")
    assert done is not None
    return done - began


def create_task(running: LivePlatform, processes: int, **changes: Any) -> tuple[str, float]:
    """Create the task and return it, with when its creation was requested (unix seconds)."""
    request = running.request(running.choices[processes], **changes)
    began = time.time()
    answer = running.api.post("/training-tasks", json=request)
    assert answer.status_code == 201, answer.text
    return answer.json()["data"]["taskId"], began
