"""The Megatron-LM recipe as the local engine runs it, split in every way that it can be.

Without a GPU, torch is made to take CPUs for GPUs (tests/fakes/cuda_on_cpu); plans, trainer and megatron-core are those
of real GPUs. With one, nothing is faked, and what needs more GPUs than there are is left out.

All runs that do not depend on each other are started at once by one process that has everything imported.
"""

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fermi.frameworks import megatron
from fermi.jobs.spec import Handle, JobSpec, Node, Phase
from fermi.tokenized_data import TokenizedPair, iter_stdlib_files, tokenize_text
from tests.loss_curves import assert_alike
from tests.parallel_jobs import TINY, ParallelJobs, curve, events
from tests.platform_process import ROOT, Running
from tests.polling import until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not find_spec("megatron"), reason="needs megatron-core: make test-frameworks"),
]

SHIM = ROOT / "tests" / "fakes" / "cuda_on_cpu"
PRELOAD = (*megatron.PRELOAD, "fermi.train.train_megatron")  # here the import may touch what it takes for CUDA
DEEP = {"layers": 6, "heads": 4}  # enough to split
PLAIN = {"globalBatchSize": 12, "precision": "float32", "distributedOptimizer": False}


def split(tensor: int = 1, pipeline: int = 1, **more: int) -> dict[str, int]:
    return {"tensorParallel": tensor, "pipelineParallel": pipeline, **more}


SPLITS: dict[str, tuple[tuple[int, ...], dict[str, int], dict[str, Any]]] = {
    "1+2 data": ((1, 2), split(), {}),
    "1+2 pipeline": ((1, 2), split(pipeline=3), {}),
    "2+2 data": ((2, 2), split(), {"distributedOptimizer": True}),
    "2+2 tensor": ((2, 2), split(2), {"sequenceParallel": False}),
    "2+2 sequence": ((2, 2), split(2), {"sequenceParallel": True, "recompute": "selective"}),
    "2+2 pipeline": ((2, 2), split(pipeline=2), {}),
    "2+2 tensor and pipeline": ((2, 2), split(2, 2), {"recompute": "full"}),
    "2 interleaved": ((2,), split(pipeline=2, virtualPipeline=3), {}),
}
"""GPUs per node, strategy, options; all reach the loss of one process."""

HALF = {"precision": "bfloat16", "distributedOptimizer": True, "recompute": "full", "sequenceParallel": True}


def gpus() -> int:
    """Real ones; 0 where CPUs stand in."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


class Split(ParallelJobs):
    """Jobs on nodes whose GPUs count as real. What needs more of those than there are is left out."""

    def __init__(self, folder: Path, data: TokenizedPair) -> None:
        python = folder / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH="{SHIM}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
        super().__init__(folder, data, "megatron-lm", python=str(python), preload=PRELOAD)

    def job(self, name: str, gpus: tuple[int, ...], framework: str = "", **changes: Any) -> JobSpec:
        """`hyperparameters` and `options` are added to the plain ones."""
        changes["hyperparameters"] = {**DEEP, **changes.get("hyperparameters", {})}
        changes["options"] = {**PLAIN, **changes.get("options", {})}
        return super().job(name.replace(" ", "-"), gpus, framework, **changes)

    def node(self, index: int, gpus: int) -> Node:
        return replace(super().node(index, gpus), emulated=False, cpu_cores=gpus)

    def submit(self, job: JobSpec) -> None:
        if not gpus() or (len(job.nodes) == 1 and job.world_size <= gpus()):
            super().submit(job)

    def handle(self, name: str) -> Handle:
        name = name.replace(" ", "-")
        if name not in self.handles:
            pytest.skip(f"needs more than {gpus()} GPUs on one node")
        return self.handles[name]


SLOW = {"stepDelay": 0.5}
KILLED = {
    "killed": ("2+2 tensor and pipeline", {"strategy": split(2, 2), "options": {"recompute": "full"}}),
    "half killed": ("half", {"strategy": split(2), "options": HALF}),
}
"""Name -> the run without a kill that it must equal, and the job."""


@pytest.fixture(scope="module")
def parallel_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Split]:
    folder = tmp_path_factory.mktemp("megatron")
    parallel_jobs = Split(folder, tokenize_text(iter_stdlib_files(max_bytes=300_000), folder / "data"))
    parallel_jobs.submit(parallel_jobs.job("single", (1,)))
    for name, (nodes, strategy, options) in SPLITS.items():
        parallel_jobs.submit(parallel_jobs.job(name, nodes, strategy=strategy, options=options))
    parallel_jobs.submit(parallel_jobs.job("half", (2, 2), strategy=split(2), options=HALF))
    for name, (_, job) in KILLED.items():
        parallel_jobs.submit(parallel_jobs.job(name, (2, 2), **job, hyperparameters=SLOW))
    endless = {**SLOW, "totalSteps": 10_000, "evalEvery": 0, "checkpointEvery": 0}
    parallel_jobs.submit(parallel_jobs.job("stopped", (1, 1), strategy=split(pipeline=2), hyperparameters=endless))
    parallel_jobs.start()
    yield parallel_jobs
    parallel_jobs.close()


def test_a_killed_rank_ends_the_attempt_and_the_next_is_bitwise_equal(parallel_jobs: Split) -> None:
    """A plain optimizer, and one whose state is spread over the ranks, with masters of weights in half precision."""
    waiting = {name for name in KILLED if parallel_jobs.handle(name)}

    def kill_at_the_first_checkpoint() -> bool:
        for name in list(waiting):
            seen = parallel_jobs.observe(name)
            assert seen.phase not in (Phase.FAILED, Phase.SUCCEEDED), parallel_jobs.log(name)
            if events(parallel_jobs.records(name), "checkpoint"):
                os.kill(next(rank.pid for rank in seen.ranks if rank.rank == 3), signal.SIGKILL)
                waiting.remove(name)
        return not waiting

    until(kill_at_the_first_checkpoint, seconds=240, what="checkpoints")
    before = {}
    for name, (_, job) in KILLED.items():
        assert parallel_jobs.wait(name, Phase.FAILED, Phase.SUCCEEDED).cause.code == "RANK_KILLED"
        until(
            lambda name=name: (
                parallel_jobs.observe(name).left is False
                or parallel_jobs.backend.cancel(parallel_jobs.handle(name), 0.0)
            )
        )
        before[name] = curve(parallel_jobs.records(name))
        parallel_jobs.submit(parallel_jobs.job(name, (2, 2), **job, attempt=2, resume_from="auto"))
    parallel_jobs.start()
    for name, (whole, _) in KILLED.items():
        again = parallel_jobs.done(name)
        [resumed] = events(again, "resumed")
        assert 2 <= resumed["step"] < 6
        assert min(curve(again)) == resumed["step"] + 1
        assert {**before[name], **curve(again)} == curve(parallel_jobs.done(whole))


def test_a_stop_saves_and_ends_all_ranks_at_one_step(parallel_jobs: Split) -> None:
    parallel_jobs.says("stopped", "step 3", lambda records: 3 in curve(records))
    parallel_jobs.backend.cancel(parallel_jobs.handle("stopped"), 60.0)
    seen = parallel_jobs.wait("stopped", Phase.FAILED, Phase.SUCCEEDED)
    until(lambda: parallel_jobs.observe("stopped").left is False)
    assert {rank.exit_code for rank in seen.ranks if rank.state == "exited"} == {143}
    records = parallel_jobs.records("stopped")
    [stopped], [saved] = events(records, "stopped"), events(records, "checkpoint")
    assert stopped["step"] == saved["step"] == max(curve(records))


def test_a_single_process_learns(parallel_jobs: Split) -> None:
    single = parallel_jobs.done("single")
    assert events(single, "finished") == [{"event": "finished", "step": 6}]
    assert curve(single)[6]["val_loss"] < curve(single)[1]["loss"] - 0.3


@pytest.mark.parametrize("name", SPLITS)
def test_every_split_reaches_the_loss_of_one_process(name: str, parallel_jobs: Split) -> None:
    records = parallel_jobs.done(name)
    nodes, strategy, _ = SPLITS[name]
    [started], [alone] = events(records, "started"), events(parallel_jobs.done("single"), "started")
    assert started["parameters"] == alone["parameters"]
    assert (started["tensor"], started["pipeline"]) == (strategy["tensorParallel"], strategy["pipelineParallel"])
    assert started["data"] == sum(nodes) // (started["tensor"] * started["pipeline"])
    assert_alike(curve(records), curve(parallel_jobs.done("single")))


def test_half_precision_keeps_master_weights_and_learns_as_much(parallel_jobs: Split) -> None:
    records = parallel_jobs.done("half")
    assert events(records, "started")[0]["dtype"] == "bfloat16"
    assert curve(records)[6]["val_loss"] == pytest.approx(curve(parallel_jobs.done("single"))[6]["val_loss"], rel=0.01)


def test_checkpoints_are_complete_folders_and_old_ones_deleted(parallel_jobs: Split) -> None:
    saved = events(parallel_jobs.done("2+2 tensor and pipeline"), "checkpoint")
    assert [event["step"] for event in saved] == [2, 4, 6]
    folder = Path(saved[-1]["path"])
    names = sorted(path.name for path in folder.parent.glob("checkpoint_step_*"))
    assert names == ["checkpoint_step_4", "checkpoint_step_6"]
    parts = sorted(path.name for path in folder.glob("*.pt"))
    assert parts == ["part_000_000_000.pt", "part_000_001_000.pt", "part_001_000_000.pt", "part_001_001_000.pt"]
    assert sum((folder / part).stat().st_size for part in parts) == saved[-1]["size_bytes"]


def test_a_checkpoint_of_another_split_is_refused(parallel_jobs: Split) -> None:
    path = events(parallel_jobs.done("2+2 tensor and pipeline"), "checkpoint")[-1]["path"]
    parallel_jobs.submit(parallel_jobs.job("other", (2,), strategy=split(2), resume_from=path))
    parallel_jobs.start()
    assert parallel_jobs.wait("other", Phase.SUCCEEDED, Phase.FAILED).phase == Phase.FAILED
    assert "it was saved with --pipeline_model_parallel_size 2" in parallel_jobs.log("other")


def test_without_cuda_the_trainer_says_so_in_one_line() -> None:
    if gpus():
        pytest.skip("there is a GPU")
    import subprocess

    env = {**os.environ, "PYTHONPATH": str(ROOT / "platform")}
    command = [sys.executable, "-W", "ignore", "-m", "fermi.train.train_megatron", "--train_data_path", "x"]
    done = subprocess.run(command, env=env, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("train_megatron: no CUDA here")


def test_the_platform_trains_it_and_resumes_after_a_killed_rank(platform: Running) -> None:
    if gpus() == 1:
        pytest.skip("needs two GPUs")
    like, names = platform.get("/dev-environments/env-001"), []
    for number in (1, 2):
        body = {"name": f"gpu-{number}", "projectId": like["projectId"], "clusterId": like["clusterId"],
                "zone": like["zone"]["id"], "gpuType": "A100", "gpuCount": 1, "cpuCores": 2, "memoryGb": 8}  # fmt: skip
        answer = platform.api.post("/dev-environments", json=body)
        assert answer.status_code == 201, answer.text
        names.append(answer.json()["data"]["id"])
    distributed = {
        "nodeIds": names, "masterNode": names[0], "framework": "megatron",
        "strategy": {"pipelineParallel": 2}, "options": PLAIN,
    }  # fmt: skip
    hyperparameters = {**TINY, **DEEP, "totalSteps": 40, "checkpointEvery": 5, "stepDelay": 0.1}
    env = {"PYTHONPATH": f"{SHIM}:{ROOT / 'platform'}"}
    task_id = platform.create(names, distributedConfig=distributed, hyperparameters=hyperparameters, env=env)
    until(lambda: platform.items(task_id, "checkpoints"), seconds=240, what="a checkpoint half-way")
    os.kill(platform.rank_pid(task_id, 1), signal.SIGKILL)
    task = platform.until_state(task_id, "succeeded", seconds=300)
    assert [attempt["outcome"]["code"] for attempt in task["attempts"]] == ["RANK_KILLED", "COMPLETED"]
    assert (task["framework"], task["step"], task["totalSteps"]) == ("megatron-lm", 40, 40)
    assert "tensor" in platform.log(task_id)
    refused = platform.api.post("/training-tasks", json=platform.request(["env-001"], distributedConfig={
        "nodeIds": ["env-001"], "masterNode": "env-001", "framework": "megatron",
    }))  # fmt: skip
    assert [problem["error"] for problem in refused.json()["errors"]] == ["FRAMEWORK_NEEDS_CUDA"]
