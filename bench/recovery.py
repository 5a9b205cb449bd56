"""From a rank's death (kill -9) to the end of the first optimizer step of the next attempt.

A rank other than the first is killed once a checkpoint is there; the first line of metrics of the second attempt's rank
0 has the `time` at which its step was done. A process stands by with everything imported, as on a platform that has
been up for a moment.
"""

import os
import signal
import time
from collections.abc import Iterator
from statistics import median

from bench import live
from bench.table import Figure, Target
from tests.waiting import until

ROUNDS = {1: 3, 2: 3, 14: 3}
HYPERPARAMETERS = {
    "totalSteps": 100_000,
    "stepDelay": 0.02,
    "logEvery": 1,
    "evalEvery": 100_000,
    "evalBatches": 1,
    "checkpointEvery": 5,
    "keepCheckpoints": 2,
}
TARGET_S = 2.5


def measure() -> Iterator[Figure]:
    with live.platform() as running:
        for processes, rounds in ROUNDS.items():
            took = median(_once(running, processes) for _ in range(rounds))
            what = "1 process" if processes == 1 else f"{processes} processes"
            yield Figure(f"kill -9 of a rank → next attempt's first step, {what}", took, "s", target=Target(TARGET_S))


def _once(running: live.Live, processes: int) -> float:
    task_id, _ = live.create(running, processes, hyperparameters=HYPERPARAMETERS)
    until(lambda: running.items(task_id, "checkpoints"), seconds=300, what="a checkpoint")
    victim = running.rank_pid(task_id, processes - 1)
    live.wait_for_stand_by(running)
    began = time.time()
    os.kill(victim, signal.SIGKILL)
    took = live.until_first_step(running.data / "logs" / task_id / "2" / "0.log", began)
    running.api.post(f"/training-tasks/{task_id}/stop").raise_for_status()
    running.until_final(task_id, seconds=120)
    return took
