"""The JAX trainer as real processes: through the local backend on even and uneven nodes, in shards, killed and resumed,
in a terminal, and started by flags and by Slurm's variables. Its curve is compared with one process's and with
DDP's."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fermi
from fermi.jobs.spec import Handle, JobSpec, Node, Observation, Phase
from fermi.planning import plugins, validate
from fermi.tokenized_data import TokenizedPair, iter_stdlib_files, tokenize_text
from fermi.train.terminal import CLEAR_LINE
from tests.contract.conftest import Engine
from tests.e2e.test_train_ddp import Run
from tests.loss_curves import assert_alike
from tests.parallel_jobs import TINY
from tests.platform_process import free_port
from tests.polling import until

pytestmark = pytest.mark.e2e

GLOBAL_BATCH = 12
HALVES = {"batchSize": 2, "gradientAccumulationSteps": 2}  # on three processes
MODULE = (sys.executable, "-m", "fermi.train.train_jax")
QUICK = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0"}  # compiles twice as fast
ON_CPU = {"JAX_PLATFORMS": "cpu", **QUICK}
PLATFORM = Path(fermi.__file__).parents[1]
PATIENCE = 240.0  # seconds; a busy machine compiles slowly


class Job:
    """A job on the local engine, on nodes of so many emulated GPUs."""

    def __init__(
        self, engine: Engine, data: TokenizedPair, folder: Path, gpus: tuple[int, ...], **changes: Any
    ) -> None:
        nodes = tuple(
            Node(f"env-{i}", f"node-{i}", gpu_type="A100", gpu_count=count, emulated=True)
            for i, count in enumerate(gpus)
        )
        hyperparameters = {**TINY, **changes.pop("hyperparameters", {})}
        paths = {"train_data": str(data.train_path), "valid_data": str(data.valid_path), "checkpoint_dir": str(folder)}
        values = {"attempt": 1, "master_port": free_port(), "grace_seconds": 20.0, **paths, **changes}
        spec = JobSpec(f"task-{folder.name}", "jax", nodes, "env-0", hyperparameters=hyperparameters, **values)
        assert validate.find_problems(spec) == []
        self.engine, self.spec = engine, spec
        self.handle: Handle = engine.submit(spec)

    def until(self, *phases: Phase) -> Observation:
        def reached() -> Observation | None:
            seen = self.engine.observe(self.handle)
            return seen if seen.phase in phases else None

        return until(reached, seconds=PATIENCE, what=f"{phases}: {self.text()}")

    def succeed(self) -> "Job":
        self.until(Phase.SUCCEEDED, Phase.FAILED)
        assert self.engine.observe(self.handle).phase is Phase.SUCCEEDED, self.text()
        return self

    def text(self, rank: int = 0) -> str:
        return self.engine.log(self.handle, rank)


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]


def curve(text: str) -> dict[int, dict[str, float]]:
    """What is reproducible of each step."""
    steps: dict[int, dict[str, float]] = {}
    for record in records(text):
        if "step" in record and "event" not in record:
            kept = {name: record[name] for name in ("loss", "lr", "val_loss") if name in record}
            steps.setdefault(record["step"], {}).update(kept)
    return steps


def events(text: str, name: str) -> list[dict[str, Any]]:
    return [record for record in records(text) if record.get("event") == name]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TokenizedPair:
    return tokenize_text(iter_stdlib_files(max_bytes=300_000), tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("engine")
    connection = {"data_dir": str(folder / "data"), "warm": False, "python": sys.executable}
    engine = Engine(plugins.get_backend("local", connection), folder)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def options(data: TokenizedPair) -> list[str]:
    words = [f"--train_data_path={data.train_path}", f"--valid_data_path={data.valid_path}"]
    return words + [f"--{name}={value}" for name, value in RECIPE_FLAGS.items()]


RECIPE_FLAGS = {
    "layers": 1,
    "heads": 2,
    "hidden_size": 16,
    "sequence_length": 16,
    "learning_rate": 0.01,
    "warmup_steps": 2,
    "total_steps": 6,
    "log_every": 1,
    "eval_every": 3,
    "eval_batches": 2,
    "checkpoint_every": 2,
    "keep_checkpoints": 2,
}


@pytest.fixture(scope="module")
def single(engine: Engine, data: TokenizedPair, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """One process, twelve sequences a step."""
    folder = tmp_path_factory.mktemp("single")
    return Job(engine, data, folder, (1,), hyperparameters={"batchSize": GLOBAL_BATCH}).succeed()


@pytest.fixture(scope="module")
def uneven(engine: Engine, data: TokenizedPair, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Nodes of one and of two processes; the same twelve sequences a step, in two micro steps."""
    return Job(engine, data, tmp_path_factory.mktemp("uneven"), (1, 2), hyperparameters=HALVES, env=QUICK).succeed()


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    yield
    while Run.started:
        Run.started.pop().kill()


def test_a_single_process_learns_what_ddp_learns_from_the_same_seed(
    single: Job, options: list[str], tmp_path: Path
) -> None:
    ddp = [sys.executable, "-m", "fermi.train.train_ddp", *options, f"--batch_size={GLOBAL_BATCH}"]
    run = Run(tmp_path / "log", *ddp, OMP_NUM_THREADS=1)
    assert run.wait() == 0, run.text
    assert_alike(curve(single.text()), curve(run.text))
    assert curve(single.text())[6]["val_loss"] < curve(single.text())[1]["loss"]
    [started], [other] = events(single.text(), "started"), run.events("started")
    assert started == other
    assert events(single.text(), "finished") == [{"event": "finished", "step": 6}]


def test_checkpoints_are_reported_and_old_ones_deleted(single: Job) -> None:
    folder = Path(single.spec.checkpoint_dir)
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint_step_4.npz", "checkpoint_step_6.npz"]
    announced = events(single.text(), "checkpoint")
    assert [event["step"] for event in announced] == [2, 4, 6]
    assert announced[-1]["size_bytes"] == Path(announced[-1]["path"]).stat().st_size
    assert announced[-1]["val_loss"] == curve(single.text())[6]["val_loss"]


def test_uneven_nodes_and_accumulated_gradients_learn_the_same_as_one_process(single: Job, uneven: Job) -> None:
    for rank, local_rank in enumerate((0, 0, 1)):
        assert f"[rank {rank}] world size 3, local rank {local_rank}, coordinator 127.0.0.1:" in uneven.text(rank)
    assert records(uneven.text(1)) == records(uneven.text(2)) == []
    assert_alike(curve(uneven.text()), curve(single.text()))


@pytest.fixture(scope="module")
def sharded(engine: Engine, data: TokenizedPair, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Two nodes of two: a batch shared out, weights in shards of two neighbours, two copies of them."""
    folder = tmp_path_factory.mktemp("sharded")
    whole = {"hyperparameters": {"batchSize": GLOBAL_BATCH}, "options": {"batchIsGlobal": True}}
    return Job(engine, data, folder, (2, 2), strategy={"fsdpParallel": 2}, env=QUICK, **whole).succeed()


def test_a_shared_global_batch_and_sharded_weights_learn_the_same(single: Job, sharded: Job) -> None:
    assert events(sharded.text(), "started")[0]["world_size"] == 4
    assert_alike(curve(sharded.text()), curve(single.text()))
    whole, gathered = (Path(job.spec.checkpoint_dir) / "checkpoint_step_6.npz" for job in (single, sharded))
    with np.load(whole) as one, np.load(gathered) as other:
        assert set(one) == set(other)
        for name in set(one) - {"about"}:
            np.testing.assert_allclose(other[name], one[name], atol=1e-3, err_msg=name)


def test_shards_resume_on_another_mesh_with_equal_results(
    single: Job, sharded: Job, engine: Engine, data: TokenizedPair, tmp_path: Path
) -> None:
    """On uneven nodes one copy of the weights, some of them whole, since three does not divide them; each block
    computed again, no batch made in advance."""
    start = str(Path(sharded.spec.checkpoint_dir) / "checkpoint_step_4.npz")
    changes = {"hyperparameters": {"batchSize": GLOBAL_BATCH}, "resume_from": start, "env": QUICK}
    options = {"batchIsGlobal": True, "remat": True, "prefetch": 0}
    job = Job(engine, data, tmp_path, (1, 2), strategy={"fsdpParallel": 3}, options=options, **changes).succeed()
    assert events(job.text(), "resumed") == [{"event": "resumed", "step": 4, "path": start}]
    assert_alike(curve(job.text()), {step: curve(single.text())[step] for step in (5, 6)})


def test_in_a_terminal_process_0_shows_a_bar_and_a_single_process_resumes_shards(
    single: Job, sharded: Job, options: list[str], tmp_path: Path
) -> None:
    start = f"--resume_from={Path(sharded.spec.checkpoint_dir) / 'checkpoint_step_4.npz'}"
    command = [*MODULE, *options, f"--batch_size={GLOBAL_BATCH}", start]
    env = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    ours, theirs = pty.openpty()
    env |= {"JAX_PLATFORM_NAME": "cpu", "PYTHONPATH": str(PLATFORM), **QUICK}
    process = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    text = b""
    with suppress(OSError):  # the last one to write has ended
        while chunk := os.read(ours, 1 << 16):
            text += chunk
    os.close(ours)
    shown = text.decode().replace("\r\n", "\n")
    assert process.wait(PATIENCE) == 0, shown
    lines = [line.rpartition(CLEAR_LINE)[2] for line in shown.split("\n")]
    wanted = curve(single.text())[6]
    assert f"Step 6: loss={wanted['loss']:.4g}" in "\n".join(line[:19] for line in lines)
    assert lines[-2].startswith("100%|")
    assert "| 6/6 [" in lines[-2]
    assert not records(shown)


def test_after_kill_9_of_a_rank_a_resumed_attempt_is_bitwise_equal(
    uneven: Job, engine: Engine, data: TokenizedPair, tmp_path: Path
) -> None:
    job = Job(engine, data, tmp_path, (1, 2), hyperparameters={**HALVES, "stepDelay": 2.0}, env=QUICK)
    until(lambda: events(job.text(), "checkpoint"), seconds=PATIENCE, what="a checkpoint")
    [victim] = [seen for seen in engine.observe(job.handle).ranks if seen.rank == 2]
    assert victim.pid
    os.kill(victim.pid, signal.SIGKILL)
    assert job.until(Phase.SUCCEEDED, Phase.FAILED).phase is Phase.FAILED
    assert events(job.text(), "finished") == []
    engine.backend.cancel(job.handle, 0.0)
    engine.until_gone(job.handle)

    newest = events(job.text(), "checkpoint")[-1]
    whole = Path(newest["path"]).read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    (tmp_path / "checkpoint_step_50.npz").write_bytes(flipped)
    (tmp_path / "checkpoint_step_51.npz").write_bytes(whole[:middle])
    again = {"attempt": 2, "resume_from": "auto", "hyperparameters": HALVES, "env": QUICK}
    resumed = Job(engine, data, tmp_path, (1, 2), **again).succeed()
    skipped = [Path(event["path"]).name for event in events(resumed.text(), "checkpoint_skipped")]
    assert skipped == ["checkpoint_step_51.npz", "checkpoint_step_50.npz"]
    first = newest["step"]
    assert events(resumed.text(), "resumed") == [{"event": "resumed", "step": first, "path": newest["path"]}]
    before = curve(uneven.text())
    assert curve(resumed.text()) == {step: before[step] for step in range(first + 1, 7)}


def test_sigterm_to_one_of_two_processes_started_from_flags_stops_both_at_one_step(
    options: list[str], tmp_path: Path
) -> None:
    endless = [*options, "--total_steps=100000", "--eval_every=0", "--checkpoint_every=0", "--step_delay=0.02"]
    meet = [f"--coordinator_address=127.0.0.1:{free_port()}", "--num_processes=2"]
    started = [
        Run(tmp_path / f"rank{rank}.log", *MODULE, *endless, *meet, f"--process_id={rank}", **ON_CPU) for rank in (0, 1)
    ]

    def running() -> bool:
        assert [run.process.poll() for run in started] == [None, None], [run.text for run in started]
        return max(started[0].metrics(), default=0) >= 3

    until(running, seconds=PATIENCE, what="step 3")
    started[1].process.terminate()
    assert [run.wait() for run in started] == [143, 143], [run.text for run in started]
    [stopped], [saved] = started[0].events("stopped"), started[0].events("checkpoint")
    assert stopped["step"] == saved["step"] == max(started[0].metrics())
    kept = [path.name for path in (tmp_path / "checkpoints").iterdir()]
    assert kept == [f"checkpoint_step_{stopped['step']}.npz"]


def test_two_tasks_of_a_slurm_step_rendezvous_through_its_variables(
    single: Job, options: list[str], tmp_path: Path
) -> None:
    step = {
        "SLURM_JOB_ID": 7,
        "SLURM_STEP_NODELIST": "localhost,gn[40-41]",
        "SLURM_NTASKS": 2,
    }
    port = {"JAX_COORDINATOR_PORT": free_port()}
    words = [*options, f"--batch_size={GLOBAL_BATCH}", "--batch_is_global"]
    started = [
        Run(tmp_path / f"{i}.log", *MODULE, *words, **step, **port, **ON_CPU, SLURM_PROCID=i, SLURM_LOCALID=i)
        for i in (0, 1)
    ]
    assert [run.wait() for run in started] == [0, 0], [run.text for run in started]
    assert_alike(curve(started[0].text), curve(single.text()))
