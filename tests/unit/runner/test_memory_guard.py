"""Ranks are ended before the container that they share with a notebook has no memory left: in real control groups,
where the kernel would kill otherwise."""

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fermi import messages
from fermi.engines import failure_cause
from fermi.runner import memory_guard
from fermi.runner.memory_guard import MemoryGroup, MemorySample, is_running_out
from tests.unit.runner.test_node import cause, run

MIB = 1 << 20
LIMIT = 512 * MIB
RUNNER = """
import os, sys
open({procs!r}, "w").write(str(os.getpid()))
from fermi.runner import node
node.main(sys.argv[1], {{}})
"""
NOTEBOOK = """
import os, sys
open({procs!r}, "w").write(str(os.getpid()))
kept = bytearray({size})
print("up", flush=True)
sys.stdin.readline()
"""
GROWS = """
kept = []
for _ in range(400):
    kept.append(bytearray(os.urandom(1 << 20) * 2))
    time.sleep(0.02)
sys.exit(7)
"""
"""At a pace that leaves the guard its 15 MiB for 0.15 s: it needs processor time, too, on a machine that is busy."""


class Container:
    """A control group with a limit, as a container has one. `procs`: what a process writes its id into to join."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.procs = folder, str(folder / "cgroup.procs")

    @property
    def runner(self) -> tuple[str, str]:
        return "-c", textwrap.dedent(RUNNER.format(procs=self.procs))


@pytest.fixture
def container() -> Iterator[Container]:
    """Of whichever version has the memory controller here."""
    name = f"fermi-test-guard-{os.getpid()}-{time.monotonic_ns()}"
    for top, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        folder = Path(top) / name
        try:
            folder.mkdir()
            (folder / limit).write_text(str(LIMIT))
        except OSError:
            if folder.is_dir():
                folder.rmdir()
            continue
        yield Container(folder)
        folder.rmdir()
        return
    pytest.skip("no control group with a limit of memory can be made here")


@pytest.fixture
def notebook(container: Container) -> Iterator[subprocess.Popen[str]]:
    """The environment's own process, which is to outlive the training."""
    text = NOTEBOOK.format(procs=container.procs, size=100 * MIB)
    process = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "up\n"
    yield process
    process.kill()
    process.wait()


def test_ranks_that_use_all_memory_are_ended_and_the_notebook_survives(
    tmp_path: Path, container: Container, notebook: subprocess.Popen[str]
) -> None:
    idle = "if rank == 0:\n    time.sleep(600)\n"
    ranks = run(tmp_path, idle + GROWS, 2, container.runner, memory_guard=True)
    found = cause(tmp_path)
    assert found is not None, ranks
    assert (found["code"], found["rank"], found["limit"]) == ("OUT_OF_MEMORY", 1, "512 MiB")
    assert [rank["exit_code"] for rank in ranks] == [-9, -9]
    assert all(rank["asked"] and rank["kill"] is None for rank in ranks), "they did not end by themselves"
    assert notebook.poll() is None
    assert killed(container) == 0
    told = failure_cause.build_runner_cause(found, {"nodeRank": 0, "node": "lab"})
    assert told is not None
    for language in ("en", "zh"):
        message, hint = messages.render_text(told.code, language, **told.params)
        assert found["ranksUsed"] in message
        assert found["othersUsed"] in message
        assert hint


def test_without_the_guard_the_kernel_kills(tmp_path: Path, container: Container) -> None:
    [rank] = run(tmp_path, GROWS, 1, container.runner, memory_guard=False)
    assert (rank["exit_code"], rank["kill"]["by"]) == (-9, "memory")
    assert killed(container) > 0


def test_a_page_cache_as_large_as_the_limit_ends_nothing(tmp_path: Path, container: Container) -> None:
    """Nor does memory that grows beside it and is given back."""
    script = f"""
    piece = os.urandom(1 << 20)
    for turn in range(3):
        with open(here / "data", "wb") as file:
            for _ in range(700):
                file.write(piece)
        with open(here / "data", "rb") as file:
            while file.read(1 << 20):
                pass
        (here / "cached").write_text(open({str(container.folder)!r} + "/memory.stat").read())
        kept = bytearray(os.urandom(1 << 20) * 200)
        del kept
    """
    [rank] = run(tmp_path, textwrap.dedent(script), 1, container.runner, memory_guard=True)
    assert (rank["exit_code"], cause(tmp_path)) == (0, None)
    figures = dict(line.split() for line in (tmp_path / "cached").read_text().splitlines())
    cached = sum(int(figures[name]) for name in ("inactive_file", "active_file"))
    assert cached > LIMIT / 2, "the cache was large indeed"
    assert killed(container) == 0


def test_an_unlimited_group_needs_no_guard(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_guard.find_limited_group([str(tmp_path)]) is None


def test_reclaimable_memory_is_not_counted(tmp_path: Path) -> None:
    """Names as the kernel has them: Documentation/admin-guide/cgroup-v2.rst, and of version 1 cgroup-v1/memory.rst."""
    second, first = tmp_path / "second", tmp_path / "first"
    files(second, {
        "memory.current": f"{100 * MIB}\n", "memory.max": f"{200 * MIB}\n", "memory.swap.max": "0\n",
        "memory.swap.current": "0\n",
        "memory.stat": f"anon {20 * MIB}\nfile {60 * MIB}\nshmem {10 * MIB}\nactive_file {30 * MIB}\n"
                       f"inactive_file {20 * MIB}\nslab_reclaimable {5 * MIB}\nslab {6 * MIB}\n",
    })  # fmt: skip
    files(first, {
        "memory.usage_in_bytes": f"{100 * MIB}\n", "memory.limit_in_bytes": f"{200 * MIB}\n",
        "memory.stat": f"active_file 1\ntotal_active_file {30 * MIB}\ntotal_inactive_file {20 * MIB}\n",
    })  # fmt: skip
    found = [memory_guard.find_limited_group([str(folder)]) for folder in (second, first)]
    assert [(one.limit, one.used()) for one in found if one] == [(200 * MIB, 45 * MIB), (200 * MIB, 50 * MIB)]
    assert MemoryGroup(str(second), 200 * MIB).read_free_swap() == 0


def files(folder: Path, content: dict[str, str]) -> None:
    folder.mkdir()
    for name, text in content.items():
        (folder / name).write_text(text)


def percent(*figures: tuple[float, float]) -> list[MemorySample]:
    """Of a limit of 100 GiB: used, and by ranks."""
    return [MemorySample(float(at), int(used * 2**30), int(ranks * 2**30)) for at, (used, ranks) in enumerate(figures)]


@pytest.mark.parametrize(
    ("figures", "ends"),
    [
        ([(90, 60), (96.9, 66.9)], False),  # not yet
        ([(90, 60), (97.5, 67.5)], True),  # the ranks have grown
        ([(97.5, 60), (97.5, 60)], False),  # much is used, and nothing grows
        ([(90, 60), (97.5, 60)], False),  # somebody else has grown
        ([(90, 60), (97.5, 62)], False),  # mostly
        ([(97.5, 60)], False),  # nothing is known of before
        ([(99.2, 60)], True),  # nothing is left, and their end gives much back
        ([(99.2, 60), (99.2, 60)], True),
        ([(99.2, 2)], False),  # their end would not help
    ],
)
def test_two_observations_are_needed(figures: list[tuple[float, float]], ends: bool) -> None:
    assert is_running_out(percent(*figures), 100 << 30) is ends


def killed(container: Container) -> int:
    """How many processes the kernel has killed there."""
    counts: dict[str, Any] = {}
    for name in ("memory.oom_control", "memory.events"):
        if (container.folder / name).exists():
            counts |= dict(line.split() for line in (container.folder / name).read_text().splitlines())
    return int(counts["oom_kill"])
