"""DeepSpeed with the model split by tensor and pipeline: it must learn what plain data parallelism learns."""

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fermi.jobs.spec import JobSpec, Phase
from fermi.tokenized_data import iter_stdlib_files, tokenize_text
from tests.loss_curves import assert_alike
from tests.parallel_jobs import ParallelJobs, curve, events
from tests.polling import until

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not find_spec("deepspeed"), reason="needs deepspeed")]

BATCH = {"trainBatchSize": 12, "gradientAccumulationSteps": 2}
CLIPPED = {"optimizer": "SGD", "offloadOptimizer": "none"}
"""Plain gradient descent shows a wrong norm of the gradients; Adam hides it."""

TENSOR, PIPELINE = {"tensorParallel": 2}, {"pipelineParallel": 2}
BOTH = {**TENSOR, **PIPELINE}
SPLITS: dict[str, tuple[tuple[int, ...], dict[str, int], int]] = {
    "pipeline": ((1, 1), PIPELINE, 0),
    "pipeline-data": ((2, 2), PIPELINE, 1),
    "tensor": ((2,), TENSOR, 0),
    "tensor-data": ((2, 2), TENSOR, 2),
}


@pytest.fixture(scope="module")
def parallel_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ParallelJobs]:
    folder = tmp_path_factory.mktemp("deepspeed-split")
    parallel_jobs = ParallelJobs(
        folder, tokenize_text(iter_stdlib_files(max_bytes=300_000), folder / "data"), "deepspeed"
    )
    parallel_jobs.submit(job(parallel_jobs, "data", (1, 1), {"dataParallel": 2}, zeroStage=1))
    parallel_jobs.submit(job(parallel_jobs, "data-clipped", (1, 1), {"dataParallel": 2}, zeroStage=0, **CLIPPED))
    for name, (nodes, strategy, stage) in SPLITS.items():
        parallel_jobs.submit(job(parallel_jobs, name, nodes, strategy, zeroStage=stage, **CLIPPED))
    parallel_jobs.submit(job(parallel_jobs, "killed", (4, 4), BOTH, {"stepDelay": 0.2}))
    endless = {"stepDelay": 0.2, "totalSteps": 10_000, "evalEvery": 0, "checkpointEvery": 0}
    parallel_jobs.submit(job(parallel_jobs, "stopped", (2,), PIPELINE, endless))
    parallel_jobs.start()
    yield parallel_jobs
    parallel_jobs.close()


def job(
    parallel_jobs: ParallelJobs, name: str, nodes: tuple[int, ...], strategy: dict[str, int],
    hyperparameters: dict[str, Any] | None = None, *, resume_from: str = "", attempt: int = 1, **options: Any,
) -> JobSpec:  # fmt: skip
    clipped = {"learningRate": 1.0, "gradientClipping": 0.05} if "optimizer" in options else {}
    return parallel_jobs.job(
        name, nodes, strategy=strategy, options={**BATCH, **options}, resume_from=resume_from, attempt=attempt,
        hyperparameters={"layers": 2, **clipped, **(hyperparameters or {})},
    )  # fmt: skip


def test_two_by_two_by_two_resumes_and_equals_data_parallelism(parallel_jobs: ParallelJobs) -> None:
    parallel_jobs.says("killed", "step 3", lambda records: 3 in curve(records))
    victim = next(rank for rank in parallel_jobs.observe("killed").ranks if rank.rank == 6)
    forked = Path(f"/proc/{victim.pid}/cmdline").read_bytes()
    assert b"fermi.runner.fork_server" in forked, "importing DeepSpeed's pipelines started a thread"
    os.kill(victim.pid, signal.SIGKILL)
    assert parallel_jobs.wait("killed", Phase.FAILED, Phase.SUCCEEDED).cause.code == "RANK_KILLED"
    until(
        lambda: (
            parallel_jobs.observe("killed").left is False
            or parallel_jobs.backend.cancel(parallel_jobs.handles["killed"], 0.0)
        )
    )
    first = parallel_jobs.records("killed")
    [started] = events(first, "started")
    assert {name: started[name] for name in ("tensor", "pipeline", "data", "world_size", "effective_batch_size")} == {
        "tensor": 2, "pipeline": 2, "data": 2, "world_size": 8, "effective_batch_size": 12,
    }  # fmt: skip

    parallel_jobs.submit(job(parallel_jobs, "killed", (4, 4), BOTH, attempt=2, resume_from="auto"))
    parallel_jobs.start()
    again = parallel_jobs.done("killed")
    [resumed] = events(again, "resumed")
    before, after = curve(first), curve(again)
    assert min(after) == resumed["step"] + 1
    assert {step: before[step]["loss"] for step in before if step > resumed["step"]} == {
        step: after[step]["loss"] for step in before if step > resumed["step"]
    }, "a resumed run differs from the one that it goes on with"
    assert_alike({**before, **after}, curve(parallel_jobs.done("data")))


@pytest.mark.parametrize("name", SPLITS)
def test_every_split_learns_and_clips_like_data_parallelism(name: str, parallel_jobs: ParallelJobs) -> None:
    assert_alike(curve(parallel_jobs.done(name)), curve(parallel_jobs.done("data-clipped")))


def test_a_stopped_pipeline_saves_and_ends_all_stages_at_one_step(parallel_jobs: ParallelJobs) -> None:
    parallel_jobs.says("stopped", "step 2", lambda records: 2 in curve(records))
    parallel_jobs.backend.cancel(parallel_jobs.handles["stopped"], 60.0)
    seen = parallel_jobs.wait("stopped", Phase.FAILED, Phase.SUCCEEDED)
    until(lambda: parallel_jobs.observe("stopped").left is False)
    assert {rank.exit_code for rank in seen.ranks if rank.state == "exited"} == {143}
    records = parallel_jobs.records("stopped")
    [stopped], [saved] = events(records, "stopped"), events(records, "checkpoint")
    assert stopped["step"] == saved["step"] == max(curve(records))


def test_a_checkpoint_of_another_split_is_named(parallel_jobs: ParallelJobs) -> None:
    saved = events(parallel_jobs.done("pipeline"), "checkpoint")[-1]["path"]
    parallel_jobs.submit(job(parallel_jobs, "other", (2,), TENSOR, resume_from=saved, zeroStage=0, **CLIPPED))
    parallel_jobs.start()
    seen = parallel_jobs.wait("other", Phase.FAILED, Phase.SUCCEEDED)
    assert {rank.exit_code for rank in seen.ranks} <= {2, None, -15}
    assert "'pipeline': 2}, not " in parallel_jobs.log("other")
