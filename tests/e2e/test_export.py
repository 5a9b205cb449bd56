"""A training started by hand, from rendered scripts and from `fermi launch`, is the one that the engine runs."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fermi.jobs.spec import JobSpec
from fermi.planning import plugins
from fermi.tokenized_data import TokenizedPair, iter_stdlib_files, tokenize_text
from tests import exported_scripts
from tests.exported_scripts import ROOT, Started, fake_ssh, fermi, lines_of
from tests.loss_curves import Curve, assert_alike
from tests.parallel_jobs import ParallelJobs, curve
from tests.platform_process import free_port

pytestmark = pytest.mark.e2e

QUICK = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TokenizedPair:
    return tokenize_text(iter_stdlib_files(max_bytes=300_000), tmp_path_factory.mktemp("data"))


@pytest.fixture
def started() -> Iterator[list[Started]]:
    found: list[Started] = []
    yield found
    for one in found:
        one.close()


def cooked(folder: Path, data: TokenizedPair, framework: str, **changes: Any) -> tuple[JobSpec, Curve]:
    """A job of 1 + 2 ranks, and the curve that the local engine gets."""
    parallel_jobs = ParallelJobs(folder, data, framework)
    job = exported_scripts.local(parallel_jobs.job("by-hand", (1, 2), **changes))
    parallel_jobs.submit(job)
    parallel_jobs.start()
    try:
        return job, curve(parallel_jobs.done("by-hand"))
    finally:
        parallel_jobs.close()


@pytest.fixture(scope="module")
def ddp(data: TokenizedPair, tmp_path_factory: pytest.TempPathFactory) -> tuple[JobSpec, Curve]:
    return cooked(tmp_path_factory.mktemp("ddp"), data, "pytorch-ddp")


def again(job: JobSpec, folder: Path) -> JobSpec:
    """Elsewhere and on a port of its own."""
    return replace(job, checkpoint_dir=str(folder / "check points"), master_port=free_port())


def records(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def assert_same(lines: list[str], wanted: Curve) -> None:
    found = curve(records(lines))
    assert list(found) == list(wanted), lines
    assert_alike(found, wanted)


def test_the_one_touch_script_trains_uneven_nodes_as_the_engine_does(ddp, tmp_path, started):
    job, wanted = ddp
    folder = exported_scripts.write(tmp_path / "a folder's", again(job, tmp_path), "shell")
    run = Started(tmp_path / "out", "bash", folder / "start-all.sh", **fake_ssh(tmp_path / "remote"))
    started.append(run)
    text = run.succeed()
    assert_same(lines_of(text, 0), wanted)
    copied = tmp_path / "remote" / "home" / "fermi" / job.name
    assert sorted(path.name for path in (copied / "logs").iterdir()) == ["0.log", "1.log", "2.log"]
    assert "[Rank 2] World Size: 3, Local Rank: 1" in (copied / "logs" / "2.log").read_text()
    assert (tmp_path / "check points" / "checkpoint_step_6.pt").exists()


def test_torchrun_trains_uneven_nodes_as_the_engine_does(ddp, tmp_path, started):
    job, wanted = ddp
    folder = exported_scripts.write(tmp_path / "torchrun", again(job, tmp_path), "torchrun")
    run = Started(tmp_path / "out", "bash", folder / "start-all.sh", **fake_ssh(tmp_path / "remote"))
    started.append(run)
    text = run.succeed()
    assert_same(text.splitlines(), wanted)
    assert "[Rank 2] World Size: 3, Local Rank: 1" in text


def test_jax_trains_from_a_script_on_each_node_as_the_engine_does(data, tmp_path, started):
    job, wanted = cooked(tmp_path / "jax", data, "jax", env=QUICK)
    folder = exported_scripts.write(tmp_path / "shell", again(job, tmp_path), "shell")
    for rank in (1, 0):
        started.append(Started(tmp_path / f"out-{rank}", "bash", folder / f"start-node-{rank}.sh"))
    other, head = started
    assert_same(lines_of(head.succeed(), 0), wanted)
    other.succeed()


def test_launched_nodes_train_the_reference_recipe_together(ddp, tmp_path, started):
    """Document 002's command for each node, with `fermi launch` in torchrun's place."""
    job, wanted = ddp
    words = [str(word) for word in _command(again(job, tmp_path))]
    port = str(free_port())
    shared = ["--nnodes", "2", "--nproc-per-node", "1,2", "--master-addr", "127.0.0.1", "--master-port", port]
    path = str(ROOT / "platform")
    for rank in ("1", "0"):
        command = fermi("launch", *shared, "--node-rank", rank, "--", *words)
        started.append(Started(tmp_path / f"out-{rank}", *command, PYTHONPATH=path))
    other, head = started
    assert_same(lines_of(head.succeed(), 0), wanted)
    other.succeed()


def _command(job: JobSpec) -> list[object]:
    _, *words = plugins.get_framework(job.framework).plan(job).nodes[0].command
    return [sys.executable, *words]


WANDB = (
    "import os\n"
    "def init(project, name, config):\n"
    "    print('wandb', project, name, os.environ['RANK'])\n"
    "    return __import__(__name__)\n"
    "def log(values, step): print('wandb', step, *sorted(values))\n"
    "def finish(): print('wandb finished')\n"
)


def test_launched_jax_processes_share_the_batch_and_process_0_alone_reports(data, tmp_path, started):
    """Document 001's training: local batch = batch / processes; progress and W&B on process 0."""
    (tmp_path / "wandb.py").write_text(WANDB)
    tiny = ["--n_layer=1", "--n_head=2", "--n_embd=16", "--block_size=16", "--total_steps=2", "--log_every=1"]
    words = ["--train_data_path", str(data.train_path), *tiny, "--batch_size=8", "--batch_is_global",
             "--checkpoint_dir", str(tmp_path / "kept"), "--use_wandb", "--wandb_project=mine",
             "--wandb_run_name=first"]  # fmt: skip
    module = [sys.executable, "-m", "fermi.train.train_jax", *words]
    port = ["--master-port", str(free_port())]
    path = f"{ROOT / 'platform'}:{tmp_path}"
    env = {**QUICK, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
    run = Started(tmp_path / "out", *fermi("launch", "--nproc-per-node", "2", *port, "--", *module), **env)
    started.append(run)
    text = run.succeed()
    first, second = lines_of(text, 0), lines_of(text, 1)
    assert list(curve(records(first))) == [1, 2]
    assert "wandb mine first 0" in first
    assert [line for line in first if line.startswith("wandb")][-1] == "wandb finished"
    assert not [line for line in second if line.startswith(("wandb", "{"))], second
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["checkpoint_step_2.npz"]


TUTORIAL = """
import os
import torch
import torch.nn as nn
import torch.optim as optim
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

def init_distributed():
    if "RANK" in os.environ:
        rank = int(os.environ["RANK"])
        world_size = int(os.environ["WORLD_SIZE"])
        local_rank = int(os.environ["LOCAL_RANK"])
        if torch.cuda.is_available():
            torch.cuda.set_device(local_rank)
        dist.init_process_group(backend="nccl" if torch.cuda.is_available() else "gloo", init_method="env://")
        dist.barrier()
        return rank, world_size, local_rank, True
    return 0, 1, 0, False

def cleanup():
    if dist.is_initialized():
        dist.destroy_process_group()

def main():
    rank, world_size, local_rank, distributed = init_distributed()
    device = torch.device(f"cuda:{local_rank}" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    if distributed:
        model = DDP(model, device_ids=[local_rank] if torch.cuda.is_available() else None)
    dataset = TensorDataset(torch.randn(1000, 10), torch.randn(1000, 1))
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank) if distributed else None
    dataloader = DataLoader(dataset, batch_size=32, shuffle=(sampler is None), sampler=sampler)
    criterion = nn.MSELoss()
    optimizer = optim.Adam(model.parameters(), lr=0.001)
    for epoch in range(2):
        if distributed:
            sampler.set_epoch(epoch)
        model.train()
        total_loss = 0
        for x, y in dataloader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            total_loss += loss.item()
        if rank == 0:
            print(f"Epoch {epoch}, Loss: {total_loss / len(dataloader):.4f}")
    if rank == 0:
        state_dict = model.module.state_dict() if distributed else model.state_dict()
        torch.save(state_dict, "model.pth")
    cleanup()

if __name__ == "__main__":
    main()
"""
"""Document 003's complete example; gloo where there is no GPU, as its step 1 says."""


def test_the_tutorials_script_trains_as_typed(tmp_path, started):
    (tmp_path / "train.py").write_text(TUTORIAL)
    port = ["--master-port", str(free_port())]
    run = Started(tmp_path / "out", *fermi("launch", "--nproc-per-node", "2", *port, "--", "train.py"),
                  PYTHONPATH=str(ROOT / "platform"))  # fmt: skip
    started.append(run)
    text = run.succeed()
    epochs = [[line.partition(",")[0] for line in lines_of(text, rank) if "Epoch" in line] for rank in (0, 1)]
    assert epochs == [["Epoch 0", "Epoch 1"], []]
    assert (tmp_path / "model.pth").exists()
