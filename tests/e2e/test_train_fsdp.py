"""FSDP as real processes of the local engine: every shape of nodes, crashes, checkpoints, other world sizes."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fermi.jobs.spec import JobSpec, Node, Phase
from fermi.planning import plugins, validate
from fermi.tokenized_data import TokenizedPair, iter_stdlib_files, tokenize_text
from tests.contract.conftest import Engine
from tests.e2e.test_train_ddp import Run
from tests.lazy import lazy_import
from tests.loss_curves import TOLERANCE
from tests.parallel_jobs import TINY
from tests.platform_process import free_port
from tests.polling import until

pytestmark = pytest.mark.e2e

train_ddp, train_fsdp = lazy_import("fermi.train.train_ddp"), lazy_import("fermi.train.train_fsdp")
FLAT = {**TINY, "minLearningRate": 0.01}


class Training:
    """One attempt. `gpus`: of each node; together they always see twelve sequences a step."""

    engine: ClassVar[Engine]
    data: ClassVar[TokenizedPair]
    started: ClassVar[int] = 0

    def __init__(
        self,
        folder: Path,
        *gpus: int,
        framework: str = "pytorch-fsdp",
        resume: str | Path = "",
        options: dict[str, Any] | None = None,
        **hyperparameters: Any,
    ) -> None:
        Training.started += 1
        nodes = tuple(Node(f"env-{i}", f"node-{i}", gpu_count=count, emulated=True) for i, count in enumerate(gpus))
        job = JobSpec(
            f"task-{self.started}", framework, nodes, "env-0", attempt=1, master_port=free_port(),
            hyperparameters={**FLAT, "batchSize": 12 // sum(gpus), **hyperparameters}, options=options or {},
            train_data=str(self.data.train_path), valid_data=str(self.data.valid_path),
            checkpoint_dir=str(folder), resume_from=str(resume),
        )  # fmt: skip
        assert validate.find_problems(job) == self.engine.backend.problems(job) == []
        self.folder, self.handle = folder, self.engine.submit(job)

    def finish(self) -> "Training":
        seen = self.engine.until(self.handle, Phase.SUCCEEDED, Phase.FAILED)
        assert seen.phase == Phase.SUCCEEDED, self.text()
        return self

    def text(self) -> str:
        return self.engine.log(self.handle, 0)

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text().splitlines() if line.startswith("{") and line.endswith("}")]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [record for record in self.records() if record.get("event") == name]

    def metrics(self, *names: str) -> dict[int, dict[str, float]]:
        """By steps; `names`: of the curves, all that are reproducible where none is named."""
        steps: dict[int, dict[str, float]] = {}
        for record in self.records():
            if "event" not in record:
                kept = {name: record[name] for name in names or ("loss", "lr", "val_loss") if name in record}
                steps.setdefault(record["step"], {}).update(kept)
        return steps

    def until_checkpoint(self, step: int) -> None:
        def saved() -> bool:
            assert self.engine.observe(self.handle).phase not in (Phase.SUCCEEDED, Phase.FAILED), self.text()
            return any(event["step"] >= step for event in self.events("checkpoint"))

        until(saved, what=f"the checkpoint of step {step}")


def steps(folder: Path) -> list[int]:
    """Of the checkpoints that are there, newest first."""
    return [step for step, _ in train_ddp.list_checkpoints(folder, "")]


def assert_same(training: Training, reference: Training, *expected: int) -> None:
    found, wanted = training.metrics(), reference.metrics()
    assert tuple(found) == expected
    for step in expected:
        common = found[step].keys() & wanted[step].keys()
        assert "loss" in common
        for name in common:
            assert found[step][name] == pytest.approx(wanted[step][name], rel=TOLERANCE), (step, name)


@pytest.fixture(scope="module", autouse=True)
def _engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    scratch = tmp_path_factory.mktemp("engine")
    connection = {"data_dir": str(scratch / "data"), "warm": False, "python": sys.executable}
    Training.engine = Engine(plugins.get_backend("local", connection), scratch)
    Training.data = tokenize_text(iter_stdlib_files(max_bytes=300_000), scratch)
    yield
    Training.engine.close()


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """One process that shards nothing."""
    return Training(tmp_path_factory.mktemp("single"), 1, framework="pytorch-ddp").finish()


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """Nodes of one and of two processes, six steps without a break."""
    return Training(tmp_path_factory.mktemp("uneven"), 1, 2).finish()


def test_uneven_nodes_learn_the_same_as_an_unsharded_process(single: Training, uneven: Training) -> None:
    assert_same(uneven, single, 1, 2, 3, 4, 5, 6)
    assert uneven.events("started")[0]["parameters"] == single.events("started")[0]["parameters"]


def test_one_process_learns_the_same(single: Training, tmp_path: Path) -> None:
    assert_same(Training(tmp_path, 1).finish(), single, 1, 2, 3, 4, 5, 6)


def test_hybrid_sharding_with_every_memory_option_learns_the_same(single: Training, tmp_path: Path) -> None:
    options = {"sharding": "hybrid", "cpuOffload": True, "activationCheckpointing": True, "reshardAfterForward": False}
    assert_same(Training(tmp_path, 2, 2, options=options).finish(), single, 1, 2, 3, 4, 5, 6)


def test_checkpoints_are_reported_and_old_ones_deleted(uneven: Training) -> None:
    assert steps(uneven.folder) == [6, 4]
    assert len(list(uneven.folder.iterdir())) == 2
    announced = uneven.events("checkpoint")
    assert [event["step"] for event in announced] == [2, 4, 6]
    newest = Path(announced[-1]["path"])
    written = [path for path in newest.iterdir() if path.name != "manifest.json"]
    assert announced[-1]["size_bytes"] == sum(path.stat().st_size for path in written)
    assert sorted(path.name for path in written) == [".metadata", "__0_0.distcp", "__1_0.distcp", "__2_0.distcp"]


def test_a_checkpoint_of_three_ranks_resumes_with_two_and_then_one(
    single: Training, uneven: Training, tmp_path: Path
) -> None:
    with_two = Training(tmp_path, 2, resume=uneven.folder / "checkpoint_step_4", totalSteps=5).finish()
    assert_same(with_two, single, 5)
    with_one = Training(tmp_path, 1, resume="auto").finish()
    assert with_one.events("resumed")[0]["step"] == 5
    assert_same(with_one, single, 6)


def test_after_a_kill_it_resumes_bitwise_from_the_newest_complete_checkpoint(uneven: Training, tmp_path: Path) -> None:
    killed = Training(tmp_path, 1, 2, totalSteps=10**6, stepDelay=0.1)
    killed.until_checkpoint(6)
    victim = killed.engine.observe(killed.handle).ranks[2].pid
    assert victim
    os.kill(victim, signal.SIGKILL)
    killed.engine.until(killed.handle, Phase.FAILED)
    killed.engine.until_gone(killed.handle)

    newest, older, *_ = steps(tmp_path)
    torn = tmp_path / f"checkpoint_step_{newest}" / "__1_0.distcp"
    whole = torn.read_bytes()
    middle = len(whole) // 2
    torn.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    shutil.copytree(torn.parent, tmp_path / f"checkpoint_step_{newest + 2}.partial")

    resumed = Training(tmp_path, 1, 2, resume="auto", totalSteps=newest).finish()
    assert [Path(event["path"]).name for event in resumed.events("checkpoint_skipped")] == [torn.parent.name]
    assert [event["step"] for event in resumed.events("resumed")] == [older]
    before, after = killed.metrics("loss", "lr"), resumed.metrics("loss", "lr")
    assert after == {step: before[step] for step in range(older + 1, newest + 1)}
    undisturbed = uneven.metrics("loss", "lr")
    assert {step: before[step] for step in undisturbed} == undisturbed
    train_fsdp.verify_checkpoint(torn.parent)  # written anew, over the damaged one
    assert list(tmp_path.glob("*.partial")) == []


def test_a_stop_saves_in_half_precision_and_the_run_can_resume(tmp_path: Path) -> None:
    options = {"mixedPrecision": "float16"}
    stopped = Training(tmp_path, 2, options=options, totalSteps=10**6, checkpointEvery=0, evalEvery=0, stepDelay=0.05)
    until(lambda: len(stopped.metrics()) >= 3, what="three steps")
    stopped.engine.backend.cancel(stopped.handle, 60.0)
    seen = stopped.engine.until_gone(stopped.handle)
    assert [rank.exit_code for rank in seen.ranks] == [143, 143], stopped.text()
    [last] = steps(tmp_path)
    assert last == max(stopped.metrics()) == stopped.events("stopped")[0]["step"]
    assert stopped.events("started")[0]["dtype"] == "float16"
    resumed = Training(tmp_path, 2, options=options, resume="auto", totalSteps=last + 1).finish()
    assert list(resumed.metrics()) == [last + 1]


def by_hand(folder: Path, *options: str) -> list[str]:
    data = [f"--train_data_path={Training.data.train_path}", f"--checkpoint_dir={folder}/checkpoints"]
    return ["-m", "fermi.train.train_fsdp", *data, "--n_layer=1", "--n_embd=64", *options]


def test_a_failed_checkpoint_ends_the_run_only_at_the_last_step(tmp_path: Path) -> None:
    words = by_hand(
        tmp_path, "--world_size=2", "--total_steps=2", "--checkpoint_every=1", "--log_every=1", "--dtype=bfloat16"
    )
    run = Run(tmp_path / "log", "bash", "-c", f"ulimit -f 64; exec {sys.executable} {' '.join(words)}")
    assert run.wait() == 1, run.text
    failed = run.events("checkpoint_failed")
    assert [event["step"] for event in failed] == [1, 2]
    assert "rank 1: " in failed[0]["why"]
    assert list(run.metrics()) == [1, 2]
    assert steps(tmp_path / "checkpoints") == []


def test_invalid_options_are_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train_fsdp.main(by_hand(tmp_path, "--no-distributed")[2:]) == 2
    assert capsys.readouterr().err == "train_fsdp: --no-distributed leaves nothing to shard over: use train_ddp\n"
    alone = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    run = Run(tmp_path / "log", sys.executable, *by_hand(tmp_path, "--shard_size=3"), **alone)
    assert run.wait() == 2
    assert "train_fsdp: --shard_size 3 does not divide the 1 processes" in run.text
    assert "Traceback" not in run.text


DAMAGE = {
    "a file is cut": lambda folder: (folder / "__0_0.distcp").write_bytes(b"pa"),
    "a bit is flipped": lambda folder: (folder / "__0_0.distcp").write_bytes(b"parT"),
    "a file is missing": lambda folder: (folder / ".metadata").unlink(),
    "the manifest is missing": lambda folder: (folder / "manifest.json").unlink(),
    "the manifest is cut": lambda folder: (folder / "manifest.json").write_text('{"step": 3, "fi'),
    "the manifest is another thing": lambda folder: (folder / "manifest.json").write_text("[]"),
    "the manifest lists no sums": lambda folder: (folder / "manifest.json").write_text(
        '{"step": 3, "options": {}, "scaler": {}, "files": {".metadata": null}}'
    ),
    "there is nothing": shutil.rmtree,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_detected_by_its_manifest(damage, tmp_path: Path) -> None:
    partial, path = tmp_path / "checkpoint_step_3.partial", tmp_path / "checkpoint_step_3"
    partial.mkdir()
    (partial / "__0_0.distcp").write_bytes(b"part")
    (partial / ".metadata").write_bytes(b"about")
    files = train_fsdp.compute_checksums(partial, "__0_*.distcp")
    manifest = {"step": 3, "options": {}, "scaler": {}, "files": files}
    assert train_fsdp.commit_checkpoint(partial, path, manifest, keep=1) == len(b"partabout")
    assert train_fsdp.verify_checkpoint(path)["step"] == 3
    damage(path)
    with pytest.raises(train_ddp.CheckpointError):
        train_fsdp.verify_checkpoint(path)


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    yield
    while Run.started:
        Run.started.pop().kill()
