"""From the request to the end of the first optimizer step, against the same trainer under torchrun by hand.

Fermi: from sending POST /training-tasks until the `time` in rank 0's first line of metrics. torchrun: from starting
its process until the same. Cold: no process stands by. Warm: one has imported everything. Both platforms are up all
the while, and the ways take turns.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import live
from bench.scratch import scratch
from bench.table import Figure, Target
from bench.timing import in_turns

ROUNDS = {1: 3, 14: 3}
HYPERPARAMETERS = {"totalSteps": 1, "evalBatches": 1}
TARGETS = {(1, "cold"): 0.5, (14, "cold"): 0.2, (1, "warm"): 0.15, (14, "warm"): 0.03}


def measure() -> Iterator[Figure]:
    warm = live.shared()
    with ExitStack() as stack:
        cold = stack.enter_context(live.platform(FERMI_STAND_BY="0"))
        folder = stack.enter_context(scratch())
        folder.mkdir()
        for processes, rounds in ROUNDS.items():
            words = _settle(cold, processes)
            took = in_turns(
                rounds,
                torchrun=partial(_by_hand, words, processes, folder / "torchrun.log"),
                cold=partial(_cold, cold, processes),
                warm=partial(_warm, warm, processes),
            )
            for way in ("cold", "warm"):
                bound = TARGETS.get((processes, way))
                target = None if bound is None else Target(bound, of="ratio")
                what = "1 process" if processes == 1 else f"{processes} processes"
                yield Figure(
                    f"request → first step, {what}, {way}", took[way], "s", took["torchrun"], "torchrun", target
                )


def _settle(running: live.Live, processes: int) -> list[str]:
    """One run that is not counted, so that every file has been read once; gives the trainer's command."""
    task_id, _ = live.create(running, processes, hyperparameters=HYPERPARAMETERS)
    running.until_final(task_id, seconds=300)
    return live.command_of(running, task_id)


def _cold(running: live.Live, processes: int) -> float:
    task_id, began = live.create(running, processes, hyperparameters=HYPERPARAMETERS)
    took = live.until_first_step(running.data / "logs" / task_id / "1" / "0.log", began)
    running.until_state(task_id, "succeeded", seconds=300)
    return took


def _warm(running: live.Live, processes: int) -> float:
    live.wait_for_stand_by(running)
    return _cold(running, processes)


def _by_hand(words: list[str], processes: int, log: Path) -> float:
    log.unlink(missing_ok=True)
    began = time.time()
    process = live.torchrun(words, processes, log)
    took = live.until_first_step(log, began)
    process.wait(300)
    return took
