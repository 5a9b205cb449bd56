"""30 days of load with the published shape of GPU clusters, by a seed (docs/scheduling.md, "Measured": the sources).

Two thirds of the tasks want one GPU and take a few percent of all GPU time; the few from 8 GPUs on take most of it. Run
times are log-normal with a long tail. Few come at night, at noon and at the weekend.
"""

import dataclasses
import random
from collections.abc import Callable

from fermi.scheduler.snapshot import EnvironmentInfo, Project, Select, WaitingTask
from tests.scheduler.engine import DAY, Decide, Engine, Job

DAYS = 30
LOAD = 0.9  # GPU time that is asked for, of what there is
SIZES = {8: 20, 4: 12, 2: 8, 1: 16}  # GPUs of an environment -> how many environments
GPUS = sum(gpus * number for gpus, number in SIZES.items())

WIDTHS = {1: 67.6, 2: 2.9, 4: 8.5, 8: 15.9, 16: 2.5, 32: 2.0, 64: 0.6}
"""GPUs of a task -> how many of a hundred tasks (Helios, cluster Saturn)."""
MEANS = {1: 2_050, 2: 12_000, 4: 6_600, 8: 8_700, 16: 17_800, 32: 18_500, 64: 16_000}
"""GPUs of a task -> mean run time, seconds: what the shares of tasks and of GPU time give (Saturn)."""
SPREAD = 2.4
"""Of the logarithm of run times of one width. Of all together it is 2.6: their median is 206 s, their mean 6,652 s."""
LONGEST = 10 * DAY
HOURS = (75, 77, 60, 55, 51, 47, 44, 43, 49, 74, 101, 109, 95, 102, 114, 131, 134, 121, 98, 102, 112, 107, 96, 98)
"""Submissions by hour of the day (Saturn)."""
WEEKEND = 0.6
FAILED, FAILED_LASTS = 0.155, 0.56  # 15.5 % of GPU tasks fail, with 9.3 % of the GPU time

PROJECTS = {"vision": 0.40, "language": 0.25, "speech": 0.15, "robots": 0.12, "basics": 0.08}  # share of the tasks
GUARANTEED = 40  # GPUs of each project
CLASSES = {-1: 0.15, 0: 0.70, 1: 0.12, 100: 0.03}
PREEMPTIBLE = {-1: 1.0, 0: 0.3, 1: 0.0, 100: 0.0}
DECLARED = 0.8  # of the tasks say how long they will run at most, by 1.2 to 5 times too much
BREAKS = 45 * DAY  # mean time of an environment between failures


def trace(seed: int, decide: Decide, *, days: float = DAYS, load: float = LOAD, giving_way: bool = True) -> Engine:
    """Without `giving_way` nothing is preemptible, and nobody is guaranteed anything; all else is the same."""
    dice = random.Random(seed)
    places = [
        EnvironmentInfo(
            f"e{gpus}-{number:02}", f"e{gpus}-{number:02}", "lab", "c", "z", gpu_type="A100", gpus=gpus, shared=True
        )
        for gpus, count in SIZES.items()
        for number in range(count)
    ]
    jobs: list[Job] = []
    asked = 0.0
    while asked < load * GPUS * days * DAY:
        one = job(dice, f"t{len(jobs):05}", days)
        jobs.append(one)
        asked += one.work * width(one)
    projects = [Project(name, name, guaranteed=GUARANTEED if giving_way else None) for name in PROJECTS]
    if not giving_way:
        for one in jobs:
            one.ask = dataclasses.replace(one.ask, preemptible=False)
    return Engine(places, projects, jobs, decide, incidents=breaks(dice, places, days), grace=60)


def width(job: Job) -> int:
    select = job.ask.select
    assert select is not None
    return select.total_gpus or (select.nodes or 1) * (select.gpus_per_node or 1)


def job(dice: random.Random, name: str, days: float) -> Job:
    gpus = dice.choices(list(WIDTHS), list(WIDTHS.values()))[0]
    work = dice.lognormvariate(0, SPREAD) * MEANS[gpus] / 2.718281828 ** (SPREAD**2 / 2)
    work = min(LONGEST, max(5.0, work * (FAILED_LASTS if dice.random() < FAILED else 1.0)))
    priority = dice.choices(list(CLASSES), list(CLASSES.values()))[0]
    project = dice.choices(list(PROJECTS), list(PROJECTS.values()))[0]
    ask = WaitingTask(
        name, project, f"{project}-{dice.randrange(8)}", "c", arrival(dice, days), (), select(dice, gpus), priority,
        preemptible=dice.random() < PREEMPTIBLE[priority],
        max_run=(work + 600) * dice.uniform(1.2, 5) if dice.random() < DECLARED else None,
    )  # fmt: skip
    return Job(ask, work, every=1800, starting=60, saves=dice.random() < 0.8, min_run=900)


def select(dice: random.Random, gpus: int) -> Select:
    """Half of those from 8 GPUs on take any mixture; the others want whole machines."""
    if gpus >= 8 and dice.random() < 0.5:
        return Select(total_gpus=gpus)
    return Select(nodes=max(1, gpus // 8), gpus_per_node=min(gpus, 8))


def arrival(dice: random.Random, days: float) -> float:
    while True:
        moment = dice.uniform(0, days * DAY)
        weekend = int(moment // DAY) % 7 >= 5
        if dice.random() * max(HOURS) < HOURS[int(moment % DAY // 3600)] * (WEEKEND if weekend else 1):
            return moment


def breaks(
    dice: random.Random, places: list[EnvironmentInfo], days: float
) -> list[tuple[float, Callable[[Engine], None]]]:
    found: list[tuple[float, Callable[[Engine], None]]] = []
    for key in (place.id for place in places):
        moment = dice.expovariate(1 / BREAKS)
        while moment < days * DAY:
            whole = moment + dice.lognormvariate(9.2, 0.8)  # some 3 to 5 hours
            found.append((moment, lambda engine, key=key: engine.set_usable(key, False)))
            found.append((whole, lambda engine, key=key: engine.set_usable(key, True)))
            moment = whole + dice.expovariate(1 / BREAKS)
    return found
