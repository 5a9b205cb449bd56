"""A folder of 10,000 files as a snapshot: the first time, again without a change, with ten changes; and delivered to a
node."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import live_platform
from bench.table import Figure, FigureTarget
from fermi.runner.worktree import check_out_tree

FILES = 10_000


def measure() -> Iterator[Figure]:
    running = live_platform.get_shared_platform()
    with tempfile.TemporaryDirectory(prefix="fermi-bench-") as scratch:
        top = Path(scratch, "mine")
        _write_files(top)
        env = {**running.env, "XDG_CACHE_HOME": scratch, "XDG_CONFIG_HOME": scratch}
        yield Figure(f"{FILES:,} files sent", _send_snapshot(env, top), "s", target=FigureTarget(5))
        yield Figure("again, unchanged", _send_snapshot(env, top), "s", target=FigureTarget(2))
        for number in range(10):
            (top / f"pkg{number:03}" / "m0000.py").write_text(f"CHANGED = {time.time()}\n")
        yield Figure("ten of them changed", _send_snapshot(env, top), "s", target=FigureTarget(2))
        items = running.get("/code/snapshots")["items"]
        key = items[0]["id"]
        began = time.monotonic()
        running.api.get(f"/code/snapshots/{key}/archive", timeout=120).raise_for_status()
        yield Figure("its archive made and read", time.monotonic() - began, "s")
        archive, tree = str(running.data / "code" / "archives" / key), str(Path(scratch, "trees", "task-1", "code"))
        for attempt, name in (
            ("task-1-1", "unpacked and verified on a node"),
            ("task-1-2", "again, for the next attempt"),
        ):
            began = time.monotonic()
            check_out_tree(archive, key, tree, attempt)
            yield Figure(name, time.monotonic() - began, "s", target=FigureTarget(5))


def _write_files(top: Path) -> None:
    old = time.time() - 3600
    for number in range(FILES):
        path = top / f"pkg{number // 100:03}" / f"m{number % 100:04}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# module {number}\n" + "VALUE = 1\n" * (number % 200))
        os.utime(path, (old, old))


def _send_snapshot(env: dict[str, str], top: Path) -> float:
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "fermi.cli", "code", "send", str(top)], env=env, check=True, capture_output=True
    )
    return time.monotonic() - began
