"""Ranks with unequal parts of the batch compute the gradient of the whole batch: the same as one process does."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fermi.planning import plugins
from fermi.tokenized_data import iter_stdlib_files, tokenize_text
from tests.e2e.test_train_ddp import TINY, Run, checkpoints
from tests.goldens import job
from tests.lazy import lazy_import, module_path
from tests.loss_curves import assert_alike
from tests.platform_process import free_port

pytestmark = pytest.mark.e2e

torch = lazy_import("torch")
DDP, FSDP = (str(module_path(f"fermi.train.{name}")) for name in ("train_ddp", "train_fsdp"))
ONE_STEP = ["--total_steps=1", "--warmup_steps=0", "--grad_clip=0", "--eval_every=1", "--gradient_accumulation_steps=3"]


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    yield
    while Run.started:
        Run.started.pop().kill()


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    made = tokenize_text(iter_stdlib_files(max_bytes=300_000), tmp_path_factory.mktemp("data"))
    return [f"--train_data_path={made.train_path}", f"--valid_data_path={made.valid_path}", *TINY]


def train(folder: Path, script: str, parts: Sequence[int], options: Sequence[str]) -> Run:
    """Rank 0, once all ranks have ended; each is told its part of the batch as the platform tells it. `LOCAL_RANK` is
    that of nodes with one process and with the others."""
    folder.mkdir()
    port, started = free_port(), []
    for rank, part in enumerate(parts):
        place = {"RANK": rank, "LOCAL_RANK": max(rank - 1, 0), "WORLD_SIZE": len(parts)}
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "FERMI_LOCAL_BATCH_SIZE": part}
        words = [*options, f"--batch_size={sum(parts) // len(parts)}", "--distributed"]
        started.append(Run(folder / f"rank{rank}.log", sys.executable, script, *words, **place, **meet))
    assert [run.wait() for run in started] == [0] * len(parts), [run.text for run in started]
    return started[0]


def gradients(run: Run) -> list["torch.Tensor"]:
    """AdamW's first moment after one step is a tenth of the gradient."""
    folder = run.output.parent / "checkpoints"
    [name] = checkpoints(folder)
    state = torch.load(folder / name, weights_only=True)["optimizer"]["state"]
    return [state[index]["exp_avg"] * 10 for index in sorted(state)]


def test_the_gradient_is_that_of_the_global_batch_to_a_millionth(options: list[str], tmp_path: Path) -> None:
    alone = train(tmp_path / "alone", DDP, [6], [*options, *ONE_STEP])
    unequal = train(tmp_path / "unequal", DDP, [3, 2, 1], [*options, *ONE_STEP])
    wanted, found = gradients(alone), gradients(unequal)
    largest = max(float(gradient.abs().max()) for gradient in wanted)
    for one, other in zip(wanted, found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6 * largest)
    assert unequal.metrics()[1] == pytest.approx(alone.metrics()[1], rel=1e-6)


@pytest.mark.parametrize("script", [DDP, FSDP], ids=["ddp", "fsdp"])
def test_training_with_shares_equals_one_process(script: str, options: list[str], tmp_path: Path) -> None:
    alone = train(tmp_path / "alone", DDP, [6], options)
    unequal = train(tmp_path / "unequal", script, [3, 2, 1], options)
    assert_alike(unequal.metrics(), alone.metrics())


def test_the_platform_gives_each_rank_its_share_and_shares_sum_to_the_batch() -> None:
    spec = job("env-001", "env-002", hyperparameters={"batchSize": 8}, options={"batchShare": "bySpeed"})
    for framework in ("ddp", "fsdp"):
        plan = plugins.get_framework(framework).plan(spec)
        told = [process.env["FERMI_LOCAL_BATCH_SIZE"] for node in plan.nodes for process in node.processes]
        assert told == ["11", "11", "5", "5"]
