"""Compare scheduling policies: 30 days of a synthetic trace, replayed without a clock with plain FIFO, with EASY
backfill and with Fermi's rules. `bench.schedule` measures what a pass costs."""

import dataclasses
import random
import time
from collections.abc import Iterator

from bench.table import Figure
from fermi.planning.request import DEFAULT_MIN_RUN_SECONDS
from fermi.scheduler.scheduler import make_decision
from fermi.scheduler.snapshot import (
    DAY_SECONDS,
    EnvironmentInfo,
    Project,
    RunningTask,
    SchedulerSnapshot,
    Select,
    WaitingTask,
)
from tests.scheduler import baselines
from tests.scheduler.figures import Figures, figures, report
from tests.scheduler.trace import DAYS, trace

SEED = 1
POLICIES = {
    "FIFO": lambda: trace(SEED, baselines.fifo),
    "EASY": lambda: trace(SEED, baselines.easy),
    "no preemption": lambda: trace(SEED, make_decision, giving_way=False),
    "Fermi": lambda: trace(SEED, make_decision),
}
TASKS, ENVIRONMENTS = 10_000, 5_000


def measure() -> Iterator[Figure]:
    found: dict[str, Figures] = {}
    took: dict[str, float] = {}
    for name, policy in POLICIES.items():
        began = time.process_time()
        found[name] = figures(policy().run(), DAYS)
        took[name] = time.process_time() - began
    print(report(found), flush=True)
    ours, easy = found["Fermi"], found["EASY"]
    yield Figure("GPU time held", 100 * ours.held, "%", 100 * easy.held, "EASY")
    for kind, waits in ours.waits.items():
        others = easy.waits[kind]
        yield Figure(f"wait of {kind}, 95 of 100", waits.high / 3600, "h", others.high / 3600, "EASY")
    yield Figure("held GPU time lost by preemption", 100 * ours.lost, "%")
    yield Figure(f"{DAYS} days replayed", took["Fermi"], "s", took["EASY"], "EASY")


def make_snapshot(dice: random.Random) -> SchedulerSnapshot:
    """Return a queue: nine of ten environments are held; tasks of 50 projects want 1 to 16 of them, some by name."""
    names = [f"p{number}" for number in range(50)]
    places = tuple(
        EnvironmentInfo(f"e{number}", f"e{number}", dice.choice(names), "c", f"z{number % 4}",
              gpu_type=("A100", "H100")[number % 2], gpus=dice.choice((1, 2, 4, 8)), shared=number % 10 > 0)
        for number in range(ENVIRONMENTS)
    )  # fmt: skip
    keys = [place.id for place in places]
    held = tuple(
        RunningTask(f"h{number}", dice.choice(names), "ann", (key,), -dice.uniform(0, DAY_SECONDS), dice.choice((-1, 0,
             1)), dice.random() < 0.5, DEFAULT_MIN_RUN_SECONDS, dice.choice((None, dice.uniform(0, DAY_SECONDS))))
        for number, key in enumerate(keys)
        if dice.random() < 0.9
    )  # fmt: skip
    waiting = tuple(
        WaitingTask(f"t{number}", dice.choice(names), f"u{number % 300}", "c", -dice.uniform(0, 3 * DAY_SECONDS),
                tuple(dice.sample(keys, dice.randint(1, 4))) if dice.random() < 0.3 else (),
                None, dice.choice((-1, 0, 0, 0, 1, 100)), max_run=dice.choice((None, 3600.0, DAY_SECONDS)))
        for number in range(TASKS)
    )  # fmt: skip
    waiting = tuple(task if task.named else _make_request(task, dice) for task in waiting)
    projects = {
        name: Project(name, name, used=dice.uniform(0, 1e9), guaranteed=dice.choice((None, 100))) for name in names
    }
    return SchedulerSnapshot(0.0, waiting, held, places, projects)


def _make_request(task: WaitingTask, dice: random.Random) -> WaitingTask:
    kind = dice.choice(((), ("A100",), ("H100",)))
    if dice.random() < 0.2:
        return dataclasses.replace(task, select=Select(total_gpus=dice.choice((8, 14, 32)), gpu_types=kind))
    nodes, gpus = dice.choice((1, 1, 1, 2, 4, 16)), dice.choice((1, 2, 4, 8))
    return dataclasses.replace(task, select=Select(nodes=nodes, gpus_per_node=gpus, gpu_types=kind))
