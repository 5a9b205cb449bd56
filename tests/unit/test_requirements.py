"""`docs/requirements.md` says of every requirement where it is met. What it names is there: tests, texts, commands.

Its links and anchors are held with those of all pages, by `test_docs.py`.
"""

import re
import shlex
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from fermi.cli import prompts
from fermi.cli.main import make_group
from tests.gpu.check import checks

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "requirements.md"
TEXT = PAGE.read_text("utf-8")

STATES = ("met", "differs", "needs several GPUs", "needs other hardware")
CHINESE = re.compile(r"[\u4e00-\u9fff]")


class Row(NamedTuple):
    id: str
    asked: str
    where: str
    proof: str
    state: str

    @property
    def files(self) -> list[Path]:
        return [(PAGE.parent / link.partition("#")[0]).resolve() for link in re.findall(r"\]\(([^)]+)\)", self.where)]

    @property
    def proofs(self) -> list[str]:
        return self.proof.replace("\\|", "|").split("<br>")


ROWS = [
    Row(*(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]))
    for line in re.findall(r"^\| \d{3}-\d+ \|.*\|$", TEXT, re.MULTILINE)
]
CODE = [(row.id, proof[1:-1]) for row in ROWS for proof in row.proofs if proof.startswith("`")]
TESTS = sorted({code for _, code in CODE if "::" in code})
COMMANDS = sorted({code for _, code in CODE if "::" not in code})
ON_A_GPU = [(row, shlex.split(code)) for row, code in CODE if code.startswith("make gpu-check")]


def test_every_document_has_its_rows_numbered_without_a_gap() -> None:
    assert len(ROWS) >= 312
    count = Counter(row.id[:3] for row in ROWS)
    assert [row.id for row in ROWS] == [f"{of}-{n:02}" for of in sorted(count) for n in range(1, count[of] + 1)]
    assert sorted(count) == ["000", "001", "002", "003", "004"]


def test_every_row_has_both_languages_a_location_and_a_proof() -> None:
    for row in ROWS:
        assert row.asked.count("<br>") == 1, row
        assert row.files, row
        assert all(re.fullmatch("`.+`|「.+」", proof) for proof in row.proofs), row


def test_every_state_is_known_with_reasons_in_both_languages() -> None:
    for row in ROWS:
        state, _, why = row.state.partition(": ")
        assert state in STATES, row
        assert bool(why) == (state != "met"), row
        assert not why or (CHINESE.search(why) and re.search(r"[a-z]{3}", why)), row


def test_rows_with_the_same_name_have_one_state() -> None:
    """A command, a file or a field that one row says is there another way is so in all rows."""
    states: dict[str, set[str]] = {}
    for row in ROWS:
        for name in filter(re.compile("[ /(.]").search, re.findall("`([^`]+)`", row.asked.partition("<br>")[0])):
            states.setdefault(name, set()).add(row.state.partition(":")[0])
    assert {name: found for name, found in states.items() if "met" in found and "differs" in found} == {}


def test_files_required_by_rows_exist() -> None:
    """The reader's own training script, and what `create_slurm` writes, lie elsewhere."""
    asked = {name for row in ROWS for name in re.findall(r"\w[\w/.]*\.(?:py|sh|md)\b", row.asked.partition("<br>")[0])}
    folders = [ROOT, *(ROOT / name for name in ("doc", "examples", "scripts", "platform/fermi/train"))]
    there = {path.name for folder in folders for path in folder.iterdir()}
    assert {Path(name).name for name in asked} - there == {"run_slurm.sh"}


def test_the_summary_counts_the_states() -> None:
    count = Counter(row.state.partition(":")[0] for row in ROWS)
    counts = ", ".join(f"{count[state]} {state}" for state in STATES)
    assert re.findall(r"^\*\*\d+ rows: .*$", TEXT, re.MULTILINE) == [f"**{len(ROWS)} rows: {counts}.**"]


def test_every_named_test_exists() -> None:
    missing = []
    for name in TESTS:
        file, _, title = name.partition("::")
        found = (ROOT / file).read_text("utf-8") if (ROOT / file).exists() else ""
        if (f"def {title}(" if file.endswith(".py") else f'("{title}"') not in found:
            missing.append(name)
    assert missing == []


def test_a_quoted_text_is_in_a_named_file() -> None:
    missing = [
        (row.id, quoted)
        for row in ROWS
        for quoted in (proof[1:-1] for proof in row.proofs if proof.startswith("「"))
        if not any(quoted in file.read_text("utf-8") for file in row.files)
    ]
    assert missing == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_valid(command: str) -> None:
    program, *words = shlex.split(command)
    if program == "make":
        assert re.search(rf"^{words[0]}:|^[\w -]* {words[0]}[\w -]*:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif program == "fermi":
        above = click.Context(make_group())
        words = prompts.normalize_arguments(above, words)
        found = make_group().get_command(above, words[0])
        assert found is not None
        found.make_context(words[0], words[1:])
    elif program == "torchrun":
        launched_by("torch.distributed.run", words)
    elif words[0] == "-m":
        run_as_module(words[1], words[2:])
    else:
        run_as_script(words[0], words[1:])


def test_requirements_that_need_gpus_name_their_check() -> None:
    known, states = checks(), {row.id: row.state.partition(":")[0] for row in ROWS}
    passed = re.findall(r"^\| `([\w-]+)`.*?\| passed \|", (ROOT / "docs" / "gpu.md").read_text("utf-8"), re.MULTILINE)
    for row, (*_, words) in ON_A_GPU:
        name = words.removeprefix("ARGS=--only ")
        assert row in known[name].proves, (row, name)
        assert states[row] != "met" or name in passed, f"{row} is met, and docs/gpu.md has no pass of {name}"
    assert {row for row, _ in ON_A_GPU} >= {row for row, state in states.items() if state == "needs several GPUs"}
    assert {row for one in known.values() for row in one.proves} <= states.keys()


def run_as_module(name: str, words: list[str]) -> None:
    if name == "torch.distributed.launch":
        launched_by(name, words)
    elif name == "bench":
        assert set(words) <= set(import_module("bench.__main__").SECTIONS)
    elif name == "procguard":
        assert import_module("procguard.config").load_config(ROOT / words[words.index("--config") + 1]).variables
    else:
        assert import_module(name).parse_args(words).train_data_path == "train.bin"


def run_as_script(path: str, words: list[str]) -> None:
    """`train.py` is the reader's own."""
    assert path == "train.py" or (ROOT / path).is_file()
    if "--train_data_path" in words:
        run_as_module("fermi.train.train_ddp", words)


def launched_by(launcher: str, words: list[str]) -> None:
    args = import_module(launcher).parse_args(words)
    run = run_as_module if args.module else run_as_script
    run(args.training_script, args.training_script_args)
