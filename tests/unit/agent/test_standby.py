"""What stands by on a worker's host serves any script; ranks that cannot use it start as usual and say why."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fermi.agent.agent import Agent
from fermi.engines.agent import set_store
from fermi.jobs.spec import Entrypoint, JobSpec, Phase
from fermi.planning import plugins
from fermi.runner.record_frames import strip_frames
from tests import inside_engines
from tests.contract.conftest import Engine, OnWorkers
from tests.fakes.workers import agent, serving

SCRIPT = """
import os, sys
print("torch" in sys.modules, sys.argv[1:], os.environ["RANK"], sys.executable, flush=True)
"""


class WarmHost(OnWorkers):
    """One worker, whose agent keeps a process standing by."""

    def __init__(self, running: Agent, folder: Path, store: Any) -> None:
        super().__init__(plugins.get_backend("agent", {"data_dir": str(folder / "data")}), folder, store)
        self.running, self.workspace = running, folder / "workspace"
        (self.workspace / "mine").mkdir(parents=True)
        for name in ("train.py", "mine/train.py"):
            (self.workspace / name).write_text(SCRIPT, encoding="utf-8")

    def free(self) -> int:
        return 0

    def plan(self, job: JobSpec) -> Any:
        return Engine.plan(self, job)

    def standing(self) -> int:
        """The process id of what stands by."""
        standing_by = self.running.launcher._standing_by
        assert standing_by
        assert standing_by.is_running()
        return standing_by._process.pid

    def run(self, entry: Entrypoint, **changes: Any) -> str:
        """Run a task and return the log of its rank without records."""
        handle = self.submit(self.job("", (1,), entrypoint=entry, **changes))
        self.until(handle, Phase.SUCCEEDED)
        text = strip_frames(self.backend.logs(handle, 0, 0).data).decode()
        self.backend.cancel(handle, 0.0)
        self.until_gone(handle)
        return text

    def job(self, mode: str, gpus: tuple[int, ...] = (1,), **changes: Any) -> JobSpec:
        entry, framework = changes.pop("entrypoint"), changes.pop("framework", "ddp")
        return replace(super().job(mode, gpus, **changes), entrypoint=entry, framework=framework)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmHost]:
    folder = tmp_path_factory.mktemp("warm")
    with (
        serving(folder / "data" / "logs") as platform,
        agent(platform, folder / "host", ids=("node-0-0",), warm=True, workspace=str(folder / "workspace")) as running,
    ):
        set_store(platform.store)
        made = WarmHost(running, folder, platform.store)
        yield made
        made.close()


@pytest.mark.parametrize(
    "entry",
    [
        Entrypoint("train.py", ("--lr=0.1", "two words")),
        Entrypoint(module="mine.train", args=("--lr=0.1", "two words")),
        Entrypoint(command=("python", "-u", "train.py"), args=("--lr=0.1", "two words")),
    ],
    ids=["script", "module", "command"],
)
@pytest.mark.parametrize("framework", ["ddp", "fsdp"])
def test_a_script_of_its_own_starts_with_pytorch_imported(host: WarmHost, entry: Entrypoint, framework: str) -> None:
    before = host.standing()
    said = host.run(entry, framework=framework)
    assert said == f"True ['--lr=0.1', 'two words'] 0 {sys.executable}\n"
    assert host.standing() == before


def test_another_python_starts_as_usual_and_says_why(host: WarmHost, tmp_path: Path) -> None:
    before, other = host.standing(), inside_engines.make_venv(tmp_path / "venv")
    why, said = host.run(Entrypoint("train.py"), python=other).splitlines()
    assert why == f"fermi: ranks import PyTorch themselves: the process that stands by has another Python than {other}"
    assert said == f"False [] 0 {other}"
    assert host.run(Entrypoint("train.py")).startswith("True ")
    assert host.standing() == before


def test_a_variable_that_is_read_at_import_starts_as_usual_and_says_why(host: WarmHost) -> None:
    why, said = host.run(Entrypoint("train.py"), env={"TORCH_LOGS": "+dynamo", "MY_LR": "1"}).splitlines()
    assert why == "fermi: ranks import PyTorch themselves: TORCH_LOGS: read when PyTorch is imported"
    assert said.startswith("False ")


def test_a_number_of_threads_is_set_in_forked_ranks(host: WarmHost) -> None:
    (host.workspace / "threads.py").write_text("import torch; print(torch.get_num_threads(), flush=True)")
    assert host.run(Entrypoint("threads.py"), env={"OMP_NUM_THREADS": "2"}) == "2\n"
