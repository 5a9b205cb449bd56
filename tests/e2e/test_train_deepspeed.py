"""The DeepSpeed recipe as the local engine runs it: forked from one process that has everything imported."""

import os
import shutil
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from fermi.jobs.spec import Phase
from fermi.tokenized_data import iter_stdlib_files, tokenize_text
from tests.loss_curves import assert_alike
from tests.parallel_jobs import ParallelJobs, curve, events
from tests.polling import until

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not find_spec("deepspeed"), reason="needs deepspeed")]

SLOW = {"stepDelay": 0.2, "totalSteps": 10_000, "evalEvery": 0, "checkpointEvery": 0}


UNEVEN = {"microBatchSize": 2, "gradientAccumulationSteps": 2}  # 12 sequences a step on 3 processes


@pytest.fixture(scope="module")
def parallel_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ParallelJobs]:
    folder = tmp_path_factory.mktemp("deepspeed")
    parallel_jobs = ParallelJobs(
        folder, tokenize_text(iter_stdlib_files(max_bytes=300_000), folder / "data"), "deepspeed"
    )
    parallel_jobs.submit(parallel_jobs.job("ddp", (1,), "pytorch-ddp", hyperparameters={"batchSize": 12}))
    parallel_jobs.submit(parallel_jobs.job("single", (1,), options={"microBatchSize": 12, "zeroStage": 0}))
    for stage in (1, 2, 3):
        options = {"zeroStage": stage, "trainBatchSize": 12}
        parallel_jobs.submit(parallel_jobs.job(f"zero{stage}-2+2", (2, 2), options=options))
        parallel_jobs.submit(parallel_jobs.job(f"zero{stage}-1+2", (1, 2), options={**options, **UNEVEN}))
    strategy = {"dataParallel": 2, "pipelineParallel": 4, "tensorParallel": 8}
    parallel_jobs.submit(parallel_jobs.job("document", (2, 4, 8), strategy=strategy, hyperparameters={"totalSteps": 3}))
    everything = {"zeroStage": 3, "trainBatchSize": 12, "offloadParameters": "cpu", "scheduler": "WarmupCosineLR"}
    parallel_jobs.submit(parallel_jobs.job("bfloat16", (2,), options=everything, hyperparameters={"dtype": "bfloat16"}))
    killed = {"zeroStage": 3, "trainBatchSize": 12, **UNEVEN}
    parallel_jobs.submit(parallel_jobs.job("killed", (1, 2), options=killed, hyperparameters={"stepDelay": 0.2}))
    parallel_jobs.submit(parallel_jobs.job("stopped", (1, 1), options={"trainBatchSize": 12}, hyperparameters=SLOW))
    parallel_jobs.start()
    yield parallel_jobs
    parallel_jobs.close()


def test_a_killed_rank_ends_the_attempt_and_the_next_is_bitwise_equal(parallel_jobs: ParallelJobs) -> None:
    parallel_jobs.says("killed", "a checkpoint", lambda records: events(records, "checkpoint"))
    ranks = parallel_jobs.observe("killed").ranks
    victim = next(rank for rank in ranks if rank.rank == 2)
    forked = Path(f"/proc/{victim.pid}/cmdline").read_bytes()
    assert b"fermi.runner.fork_server" in forked, "importing DeepSpeed started a thread: ranks had to be executed"
    os.kill(victim.pid, signal.SIGKILL)
    assert parallel_jobs.wait("killed", Phase.FAILED, Phase.SUCCEEDED).cause.code == "RANK_KILLED"
    until(
        lambda: (
            parallel_jobs.observe("killed").left is False
            or parallel_jobs.backend.cancel(parallel_jobs.handles["killed"], 0.0)
        )
    )
    before = curve(parallel_jobs.records("killed"))

    options = {"zeroStage": 3, "trainBatchSize": 12, **UNEVEN}
    parallel_jobs.submit(parallel_jobs.job("killed", (1, 2), options=options, attempt=2, resume_from="auto"))
    parallel_jobs.start()
    again = parallel_jobs.done("killed")
    [resumed] = events(again, "resumed")
    assert 2 <= resumed["step"] < 6
    uninterrupted = curve(parallel_jobs.done("zero3-1+2"))
    assert min(curve(again)) == resumed["step"] + 1
    assert {**before, **curve(again)} == uninterrupted


def test_another_number_of_processes_resumes_its_checkpoint(parallel_jobs: ParallelJobs) -> None:
    """Four processes saved it and three load it, and the other way round, at each stage."""
    resized = {}
    for stage in (1, 2, 3):
        for saved_by, nodes in (("2+2", (1, 2)), ("1+2", (2, 2))):
            folder = Path(events(parallel_jobs.done(f"zero{stage}-{saved_by}"), "checkpoint")[1]["path"])
            name = f"zero{stage}-{saved_by}-{sum(nodes)}"
            options = {"zeroStage": stage, "trainBatchSize": 12}
            parallel_jobs.submit(parallel_jobs.job(name, nodes, options=options, resume_from=str(folder)))
            resized[name] = parallel_jobs.folder / "checkpoints" / name
    parallel_jobs.start()
    wanted = {step: values for step, values in curve(parallel_jobs.done("single")).items() if step > 4}
    for name, folder in resized.items():
        records = parallel_jobs.done(name)
        assert events(records, "resumed")[0]["step"] == 4
        assert_alike(curve(records), wanted)
        assert {path.name for path in folder.glob("checkpoint*")} == {"checkpoint_step_6"}


def test_a_stop_saves_and_ends_all_ranks_at_one_step(parallel_jobs: ParallelJobs) -> None:
    parallel_jobs.says("stopped", "step 3", lambda records: 3 in curve(records))
    parallel_jobs.backend.cancel(parallel_jobs.handles["stopped"], 60.0)
    seen = parallel_jobs.wait("stopped", Phase.FAILED, Phase.SUCCEEDED)
    until(lambda: parallel_jobs.observe("stopped").left is False)
    assert [rank.exit_code for rank in seen.ranks if rank.state == "exited"] == [143] * len(
        [rank for rank in seen.ranks if rank.state == "exited"]
    )
    records = parallel_jobs.records("stopped")
    [stopped], [saved] = events(records, "stopped"), events(records, "checkpoint")
    assert stopped["step"] == saved["step"] == max(curve(records))
    assert [path.name for path in Path(saved["path"]).parent.glob("checkpoint_step_*")] == [Path(saved["path"]).name]


def test_a_single_process_learns_what_ddp_learns(parallel_jobs: ParallelJobs) -> None:
    single = curve(parallel_jobs.done("single"))
    assert_alike(single, curve(parallel_jobs.done("ddp")))
    assert single[6]["val_loss"] < single[1]["loss"]


@pytest.mark.parametrize("nodes", ["1+2", "2+2"])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_every_zero_stage_reaches_the_loss_of_one_process(stage: int, nodes: str, parallel_jobs: ParallelJobs) -> None:
    records = parallel_jobs.done(f"zero{stage}-{nodes}")
    [started] = events(records, "started")
    assert (started["zero_stage"], started["world_size"]) == (stage, {"1+2": 3, "2+2": 4}[nodes])
    assert_alike(curve(records), curve(parallel_jobs.done("single")))


def test_the_document_s_request_trains_fourteen_processes(parallel_jobs: ParallelJobs) -> None:
    records = parallel_jobs.done("document")
    assert events(records, "started")[0]["world_size"] == 14
    assert events(records, "finished") == [{"event": "finished", "step": 3}]
    assert curve(records)[3]["val_loss"] < curve(records)[1]["loss"]
    assert "[Rank 13] World Size: 14, Local Rank: 7" in parallel_jobs.log("document", 13)


def test_checkpoints_are_complete_folders_and_old_ones_deleted(parallel_jobs: ParallelJobs) -> None:
    saved = events(parallel_jobs.done("zero2-2+2"), "checkpoint")
    assert [event["step"] for event in saved] == [2, 4, 6]
    folder = Path(saved[-1]["path"])
    names = sorted(path.name for path in folder.parent.glob("checkpoint_step_*"))
    assert names == ["checkpoint_step_4", "checkpoint_step_6"]
    files = [path for path in folder.iterdir() if path.name != "checkpoint.json"]
    assert sum(path.stat().st_size for path in files) == saved[-1]["size_bytes"]


def test_half_precision_offloading_and_deepspeeds_scheduler_train(parallel_jobs: ParallelJobs) -> None:
    records = parallel_jobs.done("bfloat16")
    assert events(records, "started")[0]["dtype"] == "bfloat16"
    rates = [values["lr"] for values in curve(records).values()]  # after each step: the next one's
    assert rates == pytest.approx([0.0, 0.005, 0.00868198, 0.0055, 0.00231802, 0.001], rel=1e-3)
    assert curve(records)[6]["val_loss"] < curve(records)[1]["loss"]


def test_no_kernel_is_compiled(parallel_jobs: ParallelJobs) -> None:
    parallel_jobs.done("zero1-1+2")
    assert not list(parallel_jobs.folder.rglob("torch_extensions/*"))


def test_an_incomplete_checkpoint_is_skipped_and_a_stale_compiler_lock_ignored(parallel_jobs: ParallelJobs) -> None:
    """The user's own folder of compiled kernels wins over the attempt's, and keeps ranks from being forked."""
    before = curve(parallel_jobs.done("single"))
    shutil.copytree(parallel_jobs.folder / "checkpoints" / "single", parallel_jobs.folder / "checkpoints" / "torn")
    newest = parallel_jobs.folder / "checkpoints" / "torn" / "checkpoint_step_6" / "mp_rank_00_model_states.pt"
    whole = newest.read_bytes()
    middle = len(whole) // 2
    newest.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    extensions = parallel_jobs.folder / "extensions"
    (extensions / "deepspeed_shm_comm").mkdir(parents=True)
    (extensions / "deepspeed_shm_comm" / "lock").touch()

    options = {"microBatchSize": 12, "zeroStage": 0}
    env = {"TORCH_EXTENSIONS_DIR": str(extensions)}
    parallel_jobs.submit(parallel_jobs.job("torn", (1,), options=options, env=env, resume_from="auto"))
    parallel_jobs.start()
    records = parallel_jobs.done("torn")
    assert [Path(event["path"]).name for event in events(records, "checkpoint_skipped")] == ["checkpoint_step_6"]
    assert curve(records) == {step: before[step] for step in (5, 6)}
