"""The tutorial of DDP: each of its snippets runs, in the order of the page, as the page says it does."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_train_ddp import Run
from tests.lazy import lazy_import
from tests.platform_process import free_port

pytestmark = pytest.mark.e2e

torch, train_ddp = lazy_import("torch"), lazy_import("fermi.train.train_ddp")
QUESTIONS = "\n## 6. "


@pytest.fixture
def page(root: Path) -> str:
    return (root / "docs" / "tutorial-ddp.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    found: list[str] = re.findall(f"```{language}\n(.*?)```", text, re.DOTALL)
    return found


def test_the_script_of_the_page_learns_on_two_ranks(page: str, tmp_path: Path) -> None:
    steps, questions = page.split(QUESTIONS)
    script = tmp_path / "train.py"
    script.write_text("\n\n".join(blocks(steps, "python")), encoding="utf-8")
    command = ["-m", "torch.distributed.run", "--nproc_per_node=2", f"--master_port={free_port()}", script]
    run = Run(tmp_path / "log", sys.executable, *command, "--batch_size=8")
    assert run.wait() == 0, run.text
    losses = {record["step"]: record["loss"] for record in run.records()}
    assert list(losses) == list(range(1, 11)), "rank 0 alone speaks"
    assert losses[10] < losses[1] / 10

    names: dict[str, Any] = {"__name__": "page"}
    for block in [*blocks(steps, "python"), *blocks(questions, "python")]:
        exec(block, names)
    assert names["place"]() == (0, 0, 1)
    nn = torch.nn
    model = names["load"](nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1)), tmp_path / "model.pt", "cpu")
    inputs = torch.randn(256, 10)
    assert nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True)) < losses[1]
    assert names["effective_batch"](8, 8) == 64
    assert names["scaled"](0.001, 8) == pytest.approx(0.008)
    random = []
    for rank in (0, 1, 1):
        names["seed"](7, rank)
        random.append(torch.rand(1).item())
    assert random[0] != random[1] == random[2]


def test_statements_about_the_trainer_are_true(page: str) -> None:
    said = re.findall(r"[Ii]n the\s+trainer:\s+(.*?)(?:\n\n|\Z)", page, re.DOTALL)
    names = {name for part in said for name in re.findall(r"`((?:World|Samples|Trainer|Report)[.\w]*)`", part)}
    assert len(said) == 6
    for name in names:
        kind, _, member = name.partition(".")
        assert not member or hasattr(getattr(train_ddp, kind), member), name
    assert names >= {"World.join", "Samples.draw", "Trainer.parallel", "Trainer.advance", "Trainer.save", "World.leave"}
    own = [shlex.split(line) for block in blocks(page, "bash") for line in block.splitlines() if "train_ddp" in line]
    for words in own:
        assert train_ddp.parse_args(words[words.index("fermi.train.train_ddp") + 1 :]).train_data_path == "train.bin"
    assert own


def test_the_chinese_page_has_the_same_code(page: str, root: Path) -> None:
    chinese = (root / "docs" / "zh" / "tutorial-ddp.md").read_text(encoding="utf-8")
    for language in ("python", "bash"):
        assert blocks(chinese, language) == blocks(page, language)
