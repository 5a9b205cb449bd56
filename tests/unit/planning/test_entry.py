"""What a task names to run: what is refused before it starts anything, and what is worth a warning."""

# ruff: noqa: E501  scripts stand as they are written

from dataclasses import replace
from typing import Any

import pytest

from fermi import messages
from fermi.jobs import code
from fermi.jobs.spec import Code, Entrypoint, Late, Problem
from fermi.planning import entry
from fermi.runner.code import SnapshotFile
from tests.goldens import job


def list_codes(found: list[Problem]) -> list[tuple[str, str]]:
    for one in found:
        for language in ("en", "zh"):
            assert all(messages.render_text(one.code, language, **one.params))
    return [(one.field, one.code) for one in found]


SCRIPT, MODULE = "entrypoint.script", "entrypoint.module"


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (Entrypoint("train.py"), []),
        (Entrypoint("bin/train"), []),
        (Entrypoint(module="pkg.train"), []),
        (Entrypoint(module="train"), []),
        (Entrypoint(), [(SCRIPT, "ENTRYPOINT_ONE")]),
        (Entrypoint("train.py", module="train"), [(SCRIPT, "ENTRYPOINT_ONE")]),
        (Entrypoint("run.sh"), [(SCRIPT, "ENTRYPOINT_NOT_PYTHON")]),
        (Entrypoint("/w/Run.BASH"), [(SCRIPT, "ENTRYPOINT_NOT_PYTHON")]),
        (Entrypoint("train.ipynb"), [(SCRIPT, "ENTRYPOINT_NOT_PYTHON")]),
        (Entrypoint(module="pkg/train.py"), [(MODULE, "ENTRYPOINT_MODULE_NAME")]),
        (Entrypoint(module="pkg..train"), [(MODULE, "ENTRYPOINT_MODULE_NAME")]),
        (Entrypoint(module="-m pkg"), [(MODULE, "ENTRYPOINT_MODULE_NAME")]),
        (Entrypoint(command=("bash", "run.sh")), []),
        (Entrypoint(command=("torchrun", "train.py"), processes="node"), []),
        (Entrypoint("train.py", command=("torchrun",)), [(SCRIPT, "ENTRYPOINT_ONE")]),
        (Entrypoint(command=(" ", "train.py")), [("entrypoint.command.0", "ENTRYPOINT_COMMAND_EMPTY")]),
    ],
)
def test_an_entry_that_is_not_python_is_refused(named: Entrypoint, expected: list[tuple[str, str]]) -> None:
    assert list_codes(entry.find_problems(named)) == expected


def test_a_refusal_names_the_kind_and_the_alternative() -> None:
    [shell] = entry.find_problems(Entrypoint("run.sh"))
    assert messages.render_text(shell.code, "en", **shell.params)[0].startswith(
        "run.sh is a shell script, not a Python script"
    )
    [module] = entry.find_problems(Entrypoint(module="pkg/train.py"))
    assert module.params["nearest"] == "pkg.train"
    assert "newer Python" not in messages.render_text("SYNTAX_WRONG", "en", node="n", detail="invalid syntax")[1]


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (b"#!/usr/bin/env bash\nset -e\n", True),
        (b"#!/bin/sh -e\n", True),
        (b"#! /bin/zsh\n", True),
        (b"\x7fELF\x02\x01", True),
        (b"#!/usr/bin/env python3\nimport sys\n", False),
        (b"#!/usr/bin/env -S uv run --script\nimport sys\n", False),
        (b"print('#!/bin/sh')\n", False),
        (b"", False),
    ],
)
def test_content_of_another_program_is_refused_under_any_name(text: bytes, refused: bool) -> None:
    assert (
        list_codes(entry.find_text_problems(Entrypoint("train"), text)) == [(SCRIPT, "ENTRYPOINT_NOT_PYTHON")] * refused
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import torch.multiprocessing as mp\n\n\nmp.spawn(work, nprocs=n)\n", ("mp.spawn", 4)),
        ("from torch import multiprocessing\nmultiprocessing.spawn(work)\n", ("multiprocessing.spawn", 2)),
        ("import subprocess, sys\nsubprocess.call([sys.executable, '-m', 'torch.distributed.run', 'x.py'])", ("torch.distributed.run", 2)),
        ("import os\nos.system('torchrun --nproc_per_node=2 x.py')\n", ("torchrun", 2)),
        ("import os\nos.system(f'{python} -m x')\nos.system('python3 -m torch.distributed.launch x.py')\n", ("torch.distributed.launch", 3)),
        ("from subprocess import Popen\nPopen(f'torchrun --nnodes {n} x.py', shell=True)\n", ("torchrun", 2)),
        ("import os\nos.execvp('torchrun', ['torchrun', 'x.py'])\n", ("torchrun", 2)),
        ("import subprocess\nsubprocess.run(['accelerate', 'launch', 'x.py'])\n", ("accelerate launch", 2)),
        ("import subprocess\nsubprocess.run(['deepspeed', 'x.py'])\n", ("deepspeed", 2)),
        ("from torch.distributed.launcher.api import LaunchConfig, elastic_launch\n", ("torch.distributed.launcher", 1)),
        ("from torch.distributed import launcher\nlauncher.elastic_launch(config, work)(7)\n", ("elastic_launch", 2)),
        ("from accelerate import notebook_launcher\nnotebook_launcher(train, num_processes=2)\n", ("notebook_launcher", 2)),
        # neither a start nor ranks
        ('"""Run it with torchrun --nproc_per_node=2 train.py"""\nimport subprocess\n# torchrun\n', None),
        ("import subprocess\nparser = ArgumentParser(description='torchrun train.py')\nprint('torchrun train.py')\n", None),
        ("import subprocess\nif strategy == 'deepspeed':\n    subprocess.run(['ls'])\n", None),
        ("raise RuntimeError('start it with torchrun')\n", None),
        ("def spawn(mp):\n    return rng.spawn(2)\n", None),
        ("import torch.distributed as dist\ndist.init_process_group('gloo')\n", None),
        # what cannot be read
        ("mp.spawn(work)\ndef f(:\n  '''", ("mp.spawn", 1)),
        ("\0\0\0", None),
        ("(" * 20_000, None),
    ],
    ids=range(21),
)  # fmt: skip
def test_code_that_starts_ranks_is_found_with_its_line(text: str, found: Any) -> None:
    """Without a word in a comment, a docstring or a message counting for one."""
    assert entry.find_rank_start(text.encode()) == found


def test_scripts_and_modules_that_start_ranks_give_a_warning() -> None:
    spec = job("env-001", entrypoint=Entrypoint("launch.py"))
    [one] = entry.find_warnings(spec, b"import torch.multiprocessing as mp\nmp.spawn(f)\n")
    assert (one.field, one.code, one.params["what"], one.params["line"]) == (
        SCRIPT,
        "SCRIPT_STARTS_RANKS",
        "mp.spawn",
        2,
    )
    assert "line 2: mp.spawn" in messages.render_text(one.code, "en", **one.params)[0]
    launcher = job("env-001", entrypoint=Entrypoint(module="torch.distributed.run", args=("train.py",)))
    assert list_codes(entry.find_warnings(launcher, b"")) == [(MODULE, "SCRIPT_STARTS_RANKS")]
    assert entry.find_warnings(job("env-001"), b"") == []


def test_an_unexpanded_shell_variable_gives_a_warning_with_the_placeholder() -> None:
    args = (
        "--out=$FERMI_CHECKPOINT_DIR",
        "${RANK}/x",
        "$FERMI_TASK_ID",
        "$MINE",
        "^a$",
        "${oc.env:HOME}",
        "$HOME",
        "$5",
    )
    spec = job("env-001", entrypoint=Entrypoint("train.py", args), env={"MINE": "1", "LOG": "$MINE.log"})
    found = entry.find_warnings(spec, b"")
    assert list_codes(found) == [
        *((f"entrypoint.args.{index}", "VALUE_NOT_EXPANDED") for index in range(4)), ("env.LOG", "VALUE_NOT_EXPANDED")
    ]  # fmt: skip
    assert [one.params.get("placeholder") for one in found] == ["{checkpoint_dir}", "{rank}", None, None, None]
    assert "{checkpoint_dir}" in messages.render_text(found[0].code, "en", **found[0].params)[1]


FILES = [SnapshotFile(path, sha256="0") for path in ("pkg/__init__.py", "pkg/train.py", "tool/__main__.py", "alone.py")]


@pytest.mark.parametrize(
    ("module", "problem", "warning"),
    [
        ("pkg.train", [], []),
        ("tool", [], []),
        ("alone", [], []),
        ("pkg.trian", [(MODULE, "ENTRYPOINT_NOT_IN_CODE")], []),
        ("pkg", [(MODULE, "ENTRYPOINT_NOT_IN_CODE")], []),
        ("lightning.fabric.cli", [], [(MODULE, "ENTRYPOINT_MODULE_NOT_IN_CODE")]),
    ],
)
def test_a_module_is_found_in_the_code_or_installed(module: str, problem: list[Any], warning: list[Any]) -> None:
    spec = job("env-001", entrypoint=Entrypoint(module=module), code=Code("0" * 64, "/archive"))
    assert list_codes(code.find_problems(spec, FILES)) == problem
    assert list_codes(code.find_warnings(spec, FILES)) == warning


@pytest.mark.parametrize(
    ("words", "built"),
    [
        (("bash", "run.sh"), ("bash", "run.sh", "--lr", "1")),
        (("python", "-X", "dev", "train.py"), (Late.PYTHON, "-X", "dev", "train.py", "--lr", "1")),
        (("torchrun", "train.py"), (Late.PYTHON, "-m", "torch.distributed.run", "train.py", "--lr", "1")),
        (("/opt/torchrun", "train.py"), ("/opt/torchrun", "train.py", "--lr", "1")),
    ],
)
def test_a_command_runs_as_it_is_with_the_interpreter_of_the_task(
    words: tuple[str, ...], built: tuple[str | Late, ...]
) -> None:
    assert Entrypoint(command=words, args=("--lr", "1")).build_command() == built


@pytest.mark.parametrize(
    ("words", "paths"),
    [
        (("bash", "./run.sh", "train.py"), ("run.sh", "train.py")),
        (("torchrun", "--config=a.py", "/opt/train.py"), ()),
        (("bash", "-c", "cd sub && python train.py"), ()),
    ],
)
def test_the_files_of_a_command_are_the_scripts_that_it_names(words: tuple[str, ...], paths: tuple[str, ...]) -> None:
    assert Entrypoint(command=words).paths == paths


def test_a_command_that_starts_ranks_is_warned_of_once_per_gpu_only() -> None:
    one = Entrypoint(command=("uv", "run", "torchrun", "train.py"))
    text = b"import torch.distributed.run"
    [warning] = entry.find_warnings(replace(job("env-001"), entrypoint=one), b"")
    assert (warning.field, warning.code, warning.params["what"]) == (
        "entrypoint.command", "SCRIPT_STARTS_RANKS", "torchrun",
    )  # fmt: skip
    assert not entry.find_warnings(replace(job("env-001"), entrypoint=replace(one, processes="node")), text)


@pytest.mark.parametrize(
    ("command", "text", "found"),
    [
        (("bash", "run.sh"), b"set -e\ntorchrun --standalone train.py\n", ("--standalone", "run.sh:2")),
        (("bash", "run.sh"), b"torchrun \\\n  --nnodes=1 \\\n  train.py\n", ("--nnodes=1", "run.sh:2")),
        (("bash", "run.sh"), b"python -m torch.distributed.run --nnodes 1 a.py", ("--nnodes 1", "run.sh:1")),
        (("torchrun", "--standalone", "a.py"), b"", ("--standalone", "torchrun --standalone a.py")),
        (("bash", "run.sh"), b"# torchrun --standalone\ntorchrun --nnodes=1:4 --nnodes $N a.py # --standalone", None),
        (("bash", "run.sh"), b"serve --standalone", None),
    ],
)
def test_a_launcher_for_one_node_is_warned_of_on_several(
    command: tuple[str, ...], text: bytes, found: tuple[str, str] | None
) -> None:
    entrypoint = Entrypoint(command=command, processes="node")
    warnings = entry.find_warnings(replace(job("env-001", "env-003"), entrypoint=entrypoint), text)
    told = [(one.params["option"], one.params["place"]) for one in warnings if one.code == "LAUNCHER_ONE_NODE"]
    assert told == ([found] if found else [])
    assert not entry.find_warnings(replace(job("env-001"), entrypoint=entrypoint), text)


def test_what_a_shell_is_given_may_have_variables() -> None:
    named = Entrypoint(command=("echo", "$RANK"))
    assert list_codes(entry.find_warnings(replace(job("env-001"), entrypoint=named), b"")) == [
        ("entrypoint.command.1", "VALUE_NOT_EXPANDED")
    ]
    shell = Entrypoint(command=("bash", "-c", "echo $RANK"))
    assert not entry.find_warnings(replace(job("env-001"), entrypoint=shell), b"")


DECLARES = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, help="not --local_rank")
parser.add_argument(
    "--local_rank", "--local-rank", type=int, default=max(0, int("0")), help="set by the launcher",
)
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (DECLARES, ["--local_rank={local_rank}"]),
        (DECLARES + 'rank = int(os.environ["LOCAL_RANK"])', []),
        ('p.add_argument("--local-rank", required=True)\nos.environ["LOCAL_RANK"]', ["--local-rank={local_rank}"]),
        ('p.add_argument("--rank", type=int, default=16, help="of the adapter")', []),
        ('p.add_argument("--world-size")\np.add_argument("--rank")\np.add_argument("--dist-url")',
         ["--world-size={world_size}", "--rank={rank}", "--dist-url={dist_url}"]),
        ('p.add_argument("--dist-url", default="env://")', []),
        ('@click.option("--local_rank", type=int)\ndef main(local_rank): pass', ["--local_rank={local_rank}"]),
        ('print("--local_rank")\n# add_argument("--local_rank")', []),
        ("p.add_argument('--local_rank'", ["--local_rank={local_rank}"]),
    ],
)  # fmt: skip
def test_a_script_that_declares_its_place_is_offered_the_arguments(text: str, expected: list[str]) -> None:
    found = entry.find_missing_arguments(Entrypoint("train.py"), text.encode())
    assert [one.argument for one in found] == expected


def test_an_argument_that_is_given_is_not_offered_again() -> None:
    text = DECLARES.encode()
    assert entry.find_missing_arguments(Entrypoint("train.py", ("--local_rank=0",)), text) == []
    assert entry.find_missing_arguments(Entrypoint("train.py", processes="node"), text) == []
    spec = job("env-001", entrypoint=Entrypoint("train.py"))
    assert list_codes(entry.find_warnings(spec, text)) == [("entrypoint.args", "SCRIPT_NEEDS_ARGUMENT")]
