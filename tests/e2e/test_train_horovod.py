"""The Horovod recipe as the local engine runs it, and a script of the user's own. Needs Horovod, so part of
`make test-frameworks`; `make test` leaves it out."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import fermi
from fermi.jobs.spec import Entrypoint, Late, Phase, resolve
from fermi.planning import plugins
from fermi.tokenized_data import iter_stdlib_files, tokenize_text
from tests.loss_curves import assert_alike
from tests.parallel_jobs import ParallelJobs, curve, events
from tests.platform_process import Running
from tests.polling import until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not find_spec("horovod"), reason="needs Horovod: make test-frameworks"),
]

SLOW = {"stepDelay": 0.2, "totalSteps": 10_000, "evalEvery": 0, "checkpointEvery": 0}
ACCUMULATED = {"batchSize": 2, "gradientAccumulationSteps": 2}  # 12 sequences a step on 3 processes
ONE_BY_ONE = {"fusionThresholdMb": 0}
"""Each tensor is summed alone. Together, where in the ring a number's sum begins depends on what was ready when."""

OWN_SCRIPT = """\
import json, os, sys
import horovod.torch as hvd
import torch

print("before init", flush=True)
hvd.init()
total = hvd.allreduce(torch.tensor([hvd.rank()]), op=hvd.Sum).item()
about = {"rank": hvd.rank(), "size": hvd.size(), "local_rank": hvd.local_rank(), "local_size": hvd.local_size(),
         "cross_rank": hvd.cross_rank(), "cross_size": hvd.cross_size(), "total": total, "args": sys.argv[1:],
         "main": __name__, "beside": os.path.exists(os.path.join(sys.path[0], "own.py"))}
print(json.dumps(about), flush=True)
"""


@pytest.fixture(scope="module")
def parallel_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ParallelJobs]:
    folder = tmp_path_factory.mktemp("horovod")
    parallel_jobs = ParallelJobs(
        folder, tokenize_text(iter_stdlib_files(max_bytes=300_000), folder / "data"), "horovod"
    )
    parallel_jobs.backend.workspace.mkdir()
    (parallel_jobs.backend.workspace / "own.py").write_text(OWN_SCRIPT)
    parallel_jobs.submit(parallel_jobs.job("ddp", (1,), "pytorch-ddp", hyperparameters={"batchSize": 12}))
    parallel_jobs.submit(parallel_jobs.job("single", (1,), hyperparameters={"batchSize": 12}))
    parallel_jobs.submit(parallel_jobs.job("2+2", (2, 2), hyperparameters={"batchSize": 3}))
    parallel_jobs.submit(parallel_jobs.job("1+2", (1, 2), hyperparameters=ACCUMULATED, options=ONE_BY_ONE))
    everything = {"compression": "fp16", "fusionThresholdMb": 1, "cycleTimeMs": 2.5, "autotune": True, "timeline": True}
    half = {"batchSize": 6, "dtype": "bfloat16"}
    parallel_jobs.submit(parallel_jobs.job("everything", (2,), options=everything, hyperparameters=half))
    parallel_jobs.submit(
        parallel_jobs.job("2+4+8", (2, 4, 8), entrypoint=Entrypoint("own.py", ("--a b",)), hyperparameters={})
    )
    killed = {**ACCUMULATED, "stepDelay": 0.2}
    parallel_jobs.submit(parallel_jobs.job("killed", (1, 2), hyperparameters=killed, options=ONE_BY_ONE))
    parallel_jobs.submit(parallel_jobs.job("stopped", (1, 1), hyperparameters=SLOW))
    parallel_jobs.start()
    yield parallel_jobs
    parallel_jobs.close()


def test_a_killed_rank_ends_the_attempt_and_the_next_is_bitwise_equal(parallel_jobs: ParallelJobs) -> None:
    parallel_jobs.says("killed", "a checkpoint", lambda records: events(records, "checkpoint"))
    victim = next(rank for rank in parallel_jobs.observe("killed").ranks if rank.rank == 2)
    assert victim.pid is not None
    forked = Path(f"/proc/{victim.pid}/cmdline").read_bytes()
    assert b"fermi.runner.fork_server" in forked, "importing Horovod started a thread: ranks had to be executed"
    os.kill(victim.pid, signal.SIGKILL)
    ended = parallel_jobs.wait("killed", Phase.FAILED, Phase.SUCCEEDED)
    assert ended.cause is not None
    assert ended.cause.code == "RANK_KILLED"
    until(
        lambda: (
            parallel_jobs.observe("killed").left is False
            or parallel_jobs.backend.cancel(parallel_jobs.handles["killed"], 0.0)
        )
    )
    before = curve(parallel_jobs.records("killed"))

    again = parallel_jobs.job(
        "killed", (1, 2), hyperparameters=ACCUMULATED, options=ONE_BY_ONE, attempt=2, resume_from="auto"
    )
    parallel_jobs.submit(again)
    parallel_jobs.start()
    records = parallel_jobs.done("killed")
    [resumed] = events(records, "resumed")
    assert 2 <= resumed["step"] < 6
    uninterrupted = curve(parallel_jobs.done("1+2"))
    assert min(curve(records)) == resumed["step"] + 1
    assert {**before, **curve(records)} == uninterrupted


def test_a_stop_saves_and_ends_all_ranks_at_one_step(parallel_jobs: ParallelJobs) -> None:
    parallel_jobs.says("stopped", "step 3", lambda records: 3 in curve(records))
    parallel_jobs.backend.cancel(parallel_jobs.handles["stopped"], 60.0)
    until(lambda: parallel_jobs.observe("stopped").left is False, seconds=150, what="all ranks ended")
    ranks = parallel_jobs.observe("stopped").ranks
    assert [rank.exit_code for rank in ranks] == [143, 143], parallel_jobs.log("stopped")
    records = parallel_jobs.records("stopped")
    [stopped], [saved] = events(records, "stopped"), events(records, "checkpoint")
    assert stopped["step"] == saved["step"] == max(curve(records))
    assert [path.name for path in Path(saved["path"]).parent.glob("checkpoint_step_*")] == [Path(saved["path"]).name]


def test_a_single_process_learns_what_ddp_learns(parallel_jobs: ParallelJobs) -> None:
    single = curve(parallel_jobs.done("single"))
    assert_alike(single, curve(parallel_jobs.done("ddp")))
    assert single[6]["val_loss"] < single[1]["loss"]


def test_checkpoints_of_ddp_and_horovod_are_interchangeable(parallel_jobs: ParallelJobs) -> None:
    runs = (("ddp", "horovod"), ("single", "pytorch-ddp"))
    for saved, framework in runs:
        checkpoint = events(parallel_jobs.done(saved), "checkpoint")[1]
        parallel_jobs.submit(
            parallel_jobs.job(f"{framework}-after-{saved}", (1,), framework, hyperparameters={"batchSize": 12},
                        resume_from=checkpoint["path"])
        )  # fmt: skip
    parallel_jobs.start()
    for saved, framework in runs:
        whole, again = curve(parallel_jobs.done(saved)), curve(parallel_jobs.done(f"{framework}-after-{saved}"))
        assert_alike(again, {step: whole[step] for step in (5, 6)})


@pytest.mark.parametrize(("nodes", "processes"), [("2+2", 4), ("1+2", 3)])
def test_several_processes_reach_the_loss_of_one(nodes: str, processes: int, parallel_jobs: ParallelJobs) -> None:
    records, single = parallel_jobs.done(nodes), curve(parallel_jobs.done("single"))
    assert events(records, "started")[0]["world_size"] == processes
    assert_alike(curve(records), single)


def test_a_custom_script_has_the_ranks_that_horovod_would_assign(parallel_jobs: ParallelJobs) -> None:
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts

    parallel_jobs.wait("2+4+8", Phase.SUCCEEDED, Phase.FAILED)
    for slot in get_host_assignments(parse_hosts("a:2,b:4,c:8"), 14):
        log = parallel_jobs.log("2+4+8", slot.rank)
        said: dict[str, Any] = json.loads(log.splitlines()[-1]) if log.startswith("before init\n{") else {"log": log}
        assert said == {
            "rank": slot.rank, "size": 14, "local_rank": slot.local_rank, "local_size": slot.local_size,
            "cross_rank": slot.cross_rank, "cross_size": slot.cross_size, "total": 91, "args": ["--a b"],
            "main": "__main__", "beside": True,
        }  # fmt: skip
    assert parallel_jobs.observe("2+4+8").phase == Phase.SUCCEEDED


def test_compression_fusion_autotuning_and_a_timeline_train(parallel_jobs: ParallelJobs) -> None:
    records = parallel_jobs.done("everything")
    assert events(records, "started")[0]["dtype"] == "bfloat16"
    assert curve(records)[6]["val_loss"] < curve(records)[1]["loss"]
    timeline = parallel_jobs.folder / "checkpoints" / "everything" / "horovod_timeline_1.json"
    assert "allreduce" in timeline.read_text().lower()


def test_without_rank_0_the_others_fail_in_one_line(tmp_path: Path, parallel_jobs: ParallelJobs) -> None:
    job = parallel_jobs.job("alone", (1, 1), options={"timeoutSeconds": 1}, hyperparameters=SLOW)
    parallel_jobs.submit(job)
    parallel_jobs.waiting = [spec for spec in parallel_jobs.waiting if spec.stem == "node-1"]
    parallel_jobs.start()
    until(lambda: parallel_jobs.log("alone", 1), what="the rank's last words")
    assert parallel_jobs.log("alone", 1).startswith(
        f"horovod_start: no rendezvous at 127.0.0.1:{job.master_port} within 1 s"
    )
    assert "Traceback" not in parallel_jobs.log("alone", 1)


def test_the_command_for_starting_by_hand_trains_the_same(parallel_jobs: ParallelJobs) -> None:
    single = curve(parallel_jobs.done("single"))
    job = parallel_jobs.job("by-hand", (2,), options={"hosts": "localhost:2"}, hyperparameters={"batchSize": 6})
    plan = plugins.get_framework("horovod").plan(job)
    line = resolve(plan.files["horovodrun.sh"], {Late.PYTHON: sys.executable})
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": beside, "PYTHONPATH": str(Path(fermi.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["sh", "-c", line], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    said = [text.partition(":")[2] for text in done.stdout.splitlines() if text.startswith("[0]<stdout>:")]
    learnt = curve([json.loads(text) for text in said if text.startswith("{")])
    assert_alike(learnt, single)


def test_on_the_platform_it_survives_a_killed_rank(platform: Running) -> None:
    environments = ["env-001", "env-002"]
    request = {"nodeIds": environments, "masterNode": "env-001", "framework": "horovod"}
    hyperparameters = {"totalSteps": 60, "checkpointEvery": 10, "evalEvery": 20, "evalBatches": 2, "logEvery": 5,
                       "learningRate": 0.01, "warmupSteps": 5, "stepDelay": 0.05}  # fmt: skip
    task_id = platform.create(environments, distributedConfig=request, hyperparameters=hyperparameters)
    until(lambda: platform.items(task_id, "checkpoints"), seconds=240, what="a checkpoint half-way")
    os.kill(platform.rank_pid(task_id, 0), signal.SIGKILL)  # the rendezvous server goes with it
    task = platform.until_state(task_id, "succeeded", seconds=300)
    assert [attempt["outcome"]["code"] for attempt in task["attempts"]] == ["RANK_KILLED", "COMPLETED"]
    assert (task["framework"], task["step"], task["worldSize"]) == ("horovod", 60, 4)
    codes = [event["code"] for event in platform.items(task_id, "events", pageSize=200)]
    assert {"SCRIPT_RESUMED", "SCRIPT_CHECKPOINT", "STATE_SUCCEEDED"} <= set(codes)
    assert "World Size: 4" in platform.log(task_id, 3, attempt=2)
    assert platform.strays() == []
