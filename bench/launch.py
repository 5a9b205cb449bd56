"""Time from requesting a training to the end of its first optimizer step, compared with the same trainer under
torchrun; and what both use while they train.

Ours: from sending POST /training-tasks to the `time` in rank 0's first line of metrics. torchrun: from starting its
process to the same. Cold: no process stands by. Warm: one has imported everything. Both platforms run all the while,
and measurements alternate.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import live_platform, procfs
from bench.table import Figure, FigureTarget
from bench.temp_platform import make_temp_folder
from bench.timing import measure_in_turns
from tests.polling import until

ROUNDS = {1: (2, 2), 14: (2, 1)}
"""Ours, and torchrun's: fourteen take it a quarter of a minute, and each time the same to a twentieth."""
HYPERPARAMETERS = {"totalSteps": 100_000, "evalBatches": 1}
TARGETS = {(1, "cold"): 0.75, (14, "cold"): 0.2, (1, "warm"): 0.15, (14, "warm"): 0.05}


def measure() -> Iterator[Figure]:
    warm = live_platform.get_shared_platform()
    with ExitStack() as stack:
        cold = stack.enter_context(live_platform.run_platform(FERMI_STAND_BY="0"))
        folder = stack.enter_context(make_temp_folder())
        folder.mkdir()
        words, ours, theirs = list[str](), list[float](), list[float]()
        for processes, (rounds, by_hand) in ROUNDS.items():
            if processes == 1:
                _measure_cold(cold, processes, words)  # is not counted: now every file has been read once
            took = measure_in_turns(
                rounds,
                {"torchrun": by_hand},
                cold=partial(_measure_cold, cold, processes, words),
                warm=partial(_measure_warm, warm, processes, ours),
                torchrun=partial(_measure_torchrun, words, processes, folder / "torchrun.log", theirs),
            )
            what = "1 process" if processes == 1 else f"{processes} processes"
            for way in ("cold", "warm"):
                target = FigureTarget(TARGETS[processes, way], applies_to="ratio")
                yield Figure(
                    f"request → first step, {what}, {way}", took[way], "s", took["torchrun"], "torchrun", target
                )
    name = f"memory of {processes} ranks with their runners, proportional"
    yield Figure(name, ours[-1], "MiB", theirs[-1], "torchrun", FigureTarget(2048))


def _measure_cold(running: live_platform.LivePlatform, processes: int, words: list[str]) -> float:
    """Measure a cold start; `words` become the trainer's command."""
    task_id, took = _measure_first_step(running, processes)
    words[:] = live_platform.read_command(running, task_id)
    _stop_task(running, task_id)
    return took


def _measure_warm(running: live_platform.LivePlatform, processes: int, memory: list[float]) -> float:
    live_platform.wait_for_stand_by(running)
    task_id, took = _measure_first_step(running, processes)
    ranks = until(lambda: _list_ranks(running, task_id), what="the platform knows all ranks")
    memory.append(procfs.read_memory([*ranks, *{procfs.read_parent(pid) for pid in ranks}]).proportional)
    _stop_task(running, task_id)
    return took


def _measure_first_step(running: live_platform.LivePlatform, processes: int) -> tuple[str, float]:
    task_id, began = live_platform.create_task(running, processes, hyperparameters=HYPERPARAMETERS, maxRestarts=0)
    return task_id, live_platform.wait_for_first_step(running.data / "logs" / task_id / "1" / "0.log", began)


def _stop_task(running: live_platform.LivePlatform, task_id: str) -> None:
    running.api.post(f"/training-tasks/{task_id}/stop").raise_for_status()
    running.until_final(task_id)


def _list_ranks(running: live_platform.LivePlatform, task_id: str) -> list[int]:
    ranks = running.task(task_id)["ranks"]
    return [rank["pid"] for rank in ranks] if all(rank["state"] == "running" for rank in ranks) else []


def _measure_torchrun(words: list[str], processes: int, log: Path, memory: list[float]) -> float:
    log.unlink(missing_ok=True)
    began = time.time()
    process = live_platform.run_torchrun(words, processes, log)
    try:
        took = live_platform.wait_for_first_step(log, began)
        memory.append(procfs.read_memory(procfs.list_descendants(process.pid)).proportional)
    finally:
        for pid in procfs.list_descendants(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()
    return took
