"""Ten thousand lines a second from fourteen ranks: does watching slow them, and is every line there?

The same script runs as a task, with the watcher reading and somebody following all logs, and by hand, writing to
plain files; in turns. Its time in steps (a little computing, then 14 or so lines) tells how much it was slowed.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from bench import live
from bench.scratch import ROOT, scratch
from bench.table import Figure, Target
from bench.timing import in_turns
from fermi.launch.backends.local.launcher import training_env

RANKS, LINES, STEPS, RATE = 14, 15, 480, 48
"""14 × 15 × 48 = 10,080 lines a second, for ten seconds."""
ROUNDS = 3
SCRIPT = ROOT / "bench" / "printer.py"
EXPECTED = RANKS * LINES * STEPS + STEPS // 10
POINTS = STEPS // 10


def measure() -> Iterator[Figure]:
    with live.platform() as running, scratch() as folder:
        folder.mkdir()
        tasks: list[str] = []
        printing: dict[str, list[float]] = {"fermi": [], "by hand": []}

        def watched() -> float:
            working, spent, task_id = _watched(running, folder)
            tasks.append(task_id)
            printing["fermi"].append(spent)
            return working

        def alone() -> float:
            working, spent = _alone(folder)
            printing["by hand"].append(spent)
            return working

        took = in_turns(ROUNDS, alone=alone, watched=watched)
        yield Figure(
            f"a step of {LINES} lines, watched", took["watched"] * 1e3, "ms", took["alone"] * 1e3, "by hand",
            Target(1.1, of="ratio"),
        )  # fmt: skip
        yield Figure(
            "its printing alone", mean(printing["fermi"]) * 1e3, "ms", mean(printing["by hand"]) * 1e3, "by hand"
        )
        yield from _missing(running, tasks[-1])


def _arguments(folder: Path) -> list[str]:
    return [str(LINES), str(STEPS), str(RATE), str(folder)]


def _watched(running: live.Live, folder: Path) -> tuple[float, float, str]:
    entrypoint = {"script": str(SCRIPT), "args": _arguments(folder)}
    task_id, _ = live.create(running, RANKS, entrypoint=entrypoint, maxRestarts=0)
    with live.client(running) as fermi:
        for _ in fermi.tasks.stream(task_id, logs="all"):  # ends with the task
            pass
    running.until_state(task_id, "succeeded")
    return *_result(folder), task_id


def _alone(folder: Path) -> tuple[float, float]:
    ranks = []
    for rank in range(RANKS):
        with (folder / f"{rank}.log").open("ab") as log:
            command = [sys.executable, str(SCRIPT), *_arguments(folder)]
            env = {**training_env(), "RANK": str(rank)}
            ranks.append(
                subprocess.Popen(command, env=env, stdout=log, start_new_session=True)
            )  # as the platform's are
    for process in ranks:
        if process.wait(300):
            raise RuntimeError(f"a printing rank ended with {process.returncode}")
    return _result(folder)


def _result(folder: Path) -> tuple[float, float]:
    """Seconds per step: in all, and printing."""
    results = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]
    for rank in range(RANKS):
        (folder / f"{rank}.json").unlink()
    return mean(result["working"] for result in results) / STEPS, mean(r["printing"] for r in results) / STEPS


def _missing(running: live.Live, task_id: str) -> Iterator[Figure]:
    """Of each way to read what was printed: how much of it is not there."""
    files = sum(
        (running.data / "logs" / task_id / "1" / f"{rank}.log").read_bytes().count(b"\n") for rank in range(RANKS)
    )
    with live.client(running) as fermi:
        downloaded = sum(
            piece.count(b"\n") for rank in range(RANKS) for piece in fermi.tasks.download_log(task_id, rank=rank)
        )
        paged = sum(1 for _ in fermi.tasks.logs(task_id, rank="all"))
        points = sum(1 for _ in fermi.tasks.metrics(task_id))
    none = Target(0)
    for where, found in (("the files", files), ("downloads", downloaded), ("pages of all ranks", paged)):
        yield Figure(f"of {EXPECTED:,} lines, missing in {where}", EXPECTED - found, "", target=none)
    yield Figure(f"of {POINTS} metric points, missing", POINTS - points, "", target=none)
