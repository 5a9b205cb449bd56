"""A training started by hand, from rendered scripts and from `fermi launch`, is the one that the engine runs."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fermi.data import Tokenised, stdlib_text, tokenise
from fermi.launch import registry
from fermi.launch.spec import JobSpec
from tests import byhand
from tests.byhand import ROOT, Started, fake_ssh, fermi, lines_of
from tests.kitchen import Kitchen, curve
from tests.running import free_port

pytestmark = pytest.mark.e2e

QUICK = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0"}
TOLERANCE = 1e-5
Curve = dict[int, dict[str, float]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Tokenised:
    return tokenise(stdlib_text(max_bytes=300_000), tmp_path_factory.mktemp("data"))


@pytest.fixture
def started() -> Iterator[list[Started]]:
    found: list[Started] = []
    yield found
    for one in found:
        one.close()


def cooked(folder: Path, data: Tokenised, framework: str, **changes: Any) -> tuple[JobSpec, Curve]:
    """A job of 1 + 2 ranks, and the curve that the local engine gets."""
    kitchen = Kitchen(folder, data, framework)
    job = byhand.local(kitchen.job("by-hand", (1, 2), **changes))
    kitchen.submit(job)
    kitchen.start()
    try:
        return job, curve(kitchen.done("by-hand"))
    finally:
        kitchen.close()


@pytest.fixture(scope="module")
def ddp(data: Tokenised, tmp_path_factory: pytest.TempPathFactory) -> tuple[JobSpec, Curve]:
    return cooked(tmp_path_factory.mktemp("ddp"), data, "pytorch-ddp")


def again(job: JobSpec, folder: Path) -> JobSpec:
    """Elsewhere and on a port of its own."""
    return replace(job, checkpoint_dir=str(folder / "check points"), master_port=free_port())


def records(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def assert_same(lines: list[str], wanted: Curve) -> None:
    found = curve(records(lines))
    assert list(found) == list(wanted), lines
    for step, values in wanted.items():
        assert found[step] == pytest.approx(values, rel=TOLERANCE), step


def test_the_one_touch_script_trains_uneven_nodes_as_the_engine_does(ddp, tmp_path, started):
    job, wanted = ddp
    folder = byhand.write(tmp_path / "a folder's", again(job, tmp_path), "shell")
    run = Started(tmp_path / "out", "bash", folder / "start-all.sh", **fake_ssh(tmp_path / "remote"))
    started.append(run)
    text = run.succeed()
    assert_same(lines_of(text, 0), wanted)
    copied = tmp_path / "remote" / "home" / "fermi" / job.name
    assert sorted(path.name for path in (copied / "logs").iterdir()) == ["0.log", "1.log", "2.log"]
    assert "[rank 2] world size 3, local rank 1" in (copied / "logs" / "2.log").read_text()
    assert (tmp_path / "check points" / "checkpoint_step_6.pt").exists()


def test_torchrun_trains_uneven_nodes_as_the_engine_does(ddp, tmp_path, started):
    job, wanted = ddp
    folder = byhand.write(tmp_path / "torchrun", again(job, tmp_path), "torchrun")
    for rank in (1, 0):
        started.append(Started(tmp_path / f"out-{rank}", "bash", folder / f"start-node-{rank}.sh"))
    other, head = started
    assert_same(head.succeed().splitlines(), wanted)
    assert "[rank 2] world size 3, local rank 1" in other.succeed()


def test_jax_trains_from_a_script_on_each_node_as_the_engine_does(data, tmp_path, started):
    job, wanted = cooked(tmp_path / "jax", data, "jax", env=QUICK)
    folder = byhand.write(tmp_path / "shell", again(job, tmp_path), "shell")
    for rank in (1, 0):
        started.append(Started(tmp_path / f"out-{rank}", "bash", folder / f"start-node-{rank}.sh"))
    other, head = started
    assert_same(lines_of(head.succeed(), 0), wanted)
    other.succeed()


def test_launched_nodes_train_the_reference_recipe_together(ddp, tmp_path, started):
    """Document 002's command for each node, with `fermi launch` in torchrun's place."""
    job, wanted = ddp
    words = [str(word) for word in _command(again(job, tmp_path))]
    port = str(free_port())
    shared = ["--nnodes", "2", "--nproc-per-node", "1,2", "--master-addr", "127.0.0.1", "--master-port", port]
    path = str(ROOT / "platform")
    for rank in ("1", "0"):
        command = fermi("launch", *shared, "--node-rank", rank, "--", *words)
        started.append(Started(tmp_path / f"out-{rank}", *command, PYTHONPATH=path))
    other, head = started
    assert_same(lines_of(head.succeed(), 0), wanted)
    other.succeed()


def _command(job: JobSpec) -> list[object]:
    _, *words = registry.framework(job.framework).plan(job).nodes[0].command
    return [sys.executable, *words]
