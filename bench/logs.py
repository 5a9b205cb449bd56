"""Ten thousand lines per second from fourteen ranks: does following the logs slow them, and is every line stored?

The same script runs as a task, with the watcher reading and a client following all logs, and by hand, writing to plain
files, alternately. Its time in steps (a little computing, then about 14 lines) shows how much it was slowed.

Then once more, for ten seconds, with fifty readers of everything, some of which read nothing until the end: what they
cost the web process, whether each of them gets every line, and whether every line is stored afterwards.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from datetime import datetime
from pathlib import Path
from statistics import mean

from bench import live_platform
from bench.procfs import read_cpu_seconds, read_memory, read_peak, reset_peak
from bench.readers import StreamReaders
from bench.table import Figure, FigureTarget
from bench.temp_platform import ROOT
from bench.timing import measure_in_turns
from bench.web import BenchWeb
from fermi.engines.local.launcher import build_training_env

RANKS, LINES, RATE = 14, 15, 48
"""14 × 15 × 48 = 10,080 lines a second."""
SHORT, STEPS = 192, 480
"""Four seconds of them, and ten."""
ROUNDS = 2
READERS, PAUSED, FROM_THE_START = 50, 5, "0.0.0.1."
SCRIPT = ROOT / "bench" / "printer.py"
EXPECTED = RANKS * LINES * STEPS + STEPS // 10
POINTS = STEPS // 10


def measure() -> Iterator[Figure]:
    running = live_platform.get_shared_platform()
    workspace = running.data / "workspace"
    folder = workspace / "printed"  # of what tasks may write
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(SCRIPT, workspace)
    printing: dict[str, list[float]] = {"fermi": [], "by hand": []}

    def watched() -> float:
        working, spent = _measure_watched(running, folder)
        printing["fermi"].append(spent)
        return working

    def alone() -> float:
        working, spent = _measure_alone(folder)
        printing["by hand"].append(spent)
        return working

    took = measure_in_turns(ROUNDS, alone=alone, watched=watched)
    yield Figure(
        f"a step of {LINES} lines, watched", took["watched"] * 1e3, "ms", took["alone"] * 1e3, "by hand",
        FigureTarget(1.1, applies_to="ratio"),
    )  # fmt: skip
    yield Figure("its printing alone", mean(printing["fermi"]) * 1e3, "ms", mean(printing["by hand"]) * 1e3, "by hand")
    task_id = yield from _run_flood(running, folder)
    yield from _count_missing(running, task_id)


def _run_flood(running: live_platform.LivePlatform, folder: Path) -> Generator[Figure, None, str]:
    """Run the script as a task and return the task."""
    pid = int(running.processes()["web"]["pid"])
    web = BenchWeb(int(running.url.rpartition(":")[2]), (running.data / "token").read_text().strip(), (pid,))
    entrypoint = {"script": SCRIPT.name, "args": _make_arguments(folder, STEPS)}
    before, spent, began = read_memory([pid]).resident, read_cpu_seconds([pid]), time.monotonic()
    reset_peak(pid)
    task_id, _ = live_platform.create_task(running, RANKS, entrypoint=entrypoint, maxRestarts=0)
    with StreamReaders(
        web, [f"/api/v1/training-tasks/{task_id}/stream?logs=all"] * READERS, PAUSED, FROM_THE_START
    ) as readers:
        readers.expect("event: end")
        running.until_state(task_id, "succeeded")
        ended = running.task(task_id)["endedAt"]
        arrived = [at for at in readers.heard() if at is not None]
        busy, grown = (read_cpu_seconds([pid]) - spent) / (time.monotonic() - began), read_peak(pid) - before
        readers.go_on()
        missing = sum(EXPECTED - lines for lines in readers.lines())
    if len(arrived) < READERS - PAUSED:
        raise RuntimeError(f"only {len(arrived)} readers came to the end")
    last = 1e3 * (max(arrived) - datetime.fromisoformat(ended).timestamp())
    yield Figure(f"{READERS} readers: the web process's memory grows by", grown, "MiB", target=FigureTarget(64))
    yield Figure("its processor", busy, "cores", target=FigureTarget(1))
    yield Figure(f"{READERS - PAUSED} that keep reading: end recorded → all of it is there, worst", last, "ms")
    yield Figure(f"of {READERS * EXPECTED:,} lines to all readers, missing", missing, "", target=FigureTarget(0))
    return task_id


def _make_arguments(folder: Path, steps: int = SHORT) -> list[str]:
    return [str(LINES), str(steps), str(RATE), str(folder)]


def _measure_watched(running: live_platform.LivePlatform, folder: Path) -> tuple[float, float]:
    entrypoint = {"script": SCRIPT.name, "args": _make_arguments(folder)}
    task_id, _ = live_platform.create_task(running, RANKS, entrypoint=entrypoint, maxRestarts=0)
    with live_platform.make_client(running) as fermi:
        for _ in fermi.tasks.stream(task_id, logs="all"):  # ends with the task
            pass
    running.until_state(task_id, "succeeded")
    return _read_result(folder)


def _measure_alone(folder: Path) -> tuple[float, float]:
    ranks = []
    for rank in range(RANKS):
        with (folder / f"{rank}.log").open("ab") as log:
            command = [sys.executable, str(SCRIPT), *_make_arguments(folder)]
            env = {**build_training_env(), "RANK": str(rank)}
            ranks.append(
                subprocess.Popen(command, env=env, stdout=log, start_new_session=True)
            )  # as the platform's are
    for process in ranks:
        if process.wait(300):
            raise RuntimeError(f"a printing rank ended with {process.returncode}")
    return _read_result(folder)


def _read_result(folder: Path) -> tuple[float, float]:
    """Return seconds per step: in all, and printing."""
    results = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]
    for rank in range(RANKS):
        (folder / f"{rank}.json").unlink()
    return mean(result["working"] for result in results) / SHORT, mean(r["printing"] for r in results) / SHORT


def _count_missing(running: live_platform.LivePlatform, task_id: str) -> Iterator[Figure]:
    """Return for each way of reading the output how many lines are missing."""
    files = sum(
        (running.data / "logs" / task_id / "1" / f"{rank}.log").read_bytes().count(b"\n") for rank in range(RANKS)
    )
    with live_platform.make_client(running) as fermi:
        downloaded = sum(
            piece.count(b"\n") for rank in range(RANKS) for piece in fermi.tasks.download_log(task_id, rank=rank)
        )
        paged = sum(1 for _ in fermi.tasks.logs(task_id, rank="all"))
        points = sum(1 for _ in fermi.tasks.metrics(task_id))
    none = FigureTarget(0)
    for where, found in (("the files", files), ("downloads", downloaded), ("pages of all ranks", paged)):
        yield Figure(f"of {EXPECTED:,} lines, missing in {where}", EXPECTED - found, "", target=none)
    yield Figure(f"of {POINTS} metric points, missing", POINTS - points, "", target=none)
