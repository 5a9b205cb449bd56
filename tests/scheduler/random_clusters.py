"""Small random worlds by a seed: every rule meets every other one somewhere among thousands of tasks."""

import random
from collections.abc import Callable

from fermi.scheduler.snapshot import EnvironmentInfo, Project, Quota, Reservation, Select, WaitingTask
from tests.scheduler.engine import Decide, Engine, Job

HOUR = 3600.0
NUMBERS = (-1, -1, 0, 0, 0, 0, 1, 1, 100)


def world(seed: int, decide: Decide, *, tasks: int = 40, calm: bool = False) -> Engine:
    """`calm`: nothing breaks, no limit changes and no reservation comes by surprise."""
    dice = random.Random(seed)
    zones = ["z1", "z2"][: dice.randint(1, 2)]
    types = ["A100", "H100"][: dice.randint(1, 2)]
    names = [f"p{number}" for number in range(dice.randint(1, 4))]
    places = [
        EnvironmentInfo(
            f"e{number:02}", f"e{number:02}", dice.choice(names), "c1" if dice.random() < 0.9 else "c2",
            dice.choice(zones), gpu_type=dice.choice(types), gpus=dice.choice((1, 2, 4, 4, 8)),
            shared=dice.random() < 0.8, labels={"disk": "fast"} if dice.random() < 0.5 else {},
            health=dice.choice((0, 0, 0, 1, 3)), link=dice.choice(("", "l1", "l2")),
        )
        for number in range(dice.randint(4, 14))
    ]  # fmt: skip
    jobs = [job(dice, f"t{number:03}", names, places) for number in range(tasks)]
    projects = [project(dice, name, places, names) for name in names]
    last = max(one.ask.since for one in jobs)
    windows = [reservation(dice, f"r{number}", names, places, last) for number in range(dice.choice((0, 0, 1, 2)))]
    incidents = [] if calm else list(trouble(dice, names, places, last))
    return Engine(
        places, projects, jobs, decide, reservations=windows, incidents=incidents, grace=dice.choice((0.0, 60.0))
    )


def job(dice: random.Random, name: str, projects: list[str], places: list[EnvironmentInfo]) -> Job:
    owner = dice.choice(projects)
    allowed = [place for place in places if place.shared or place.project == owner]
    work = min(2 * 86_400.0, dice.lognormvariate(8, 1.5))
    every, starting = dice.choice((300.0, 1800.0)), dice.choice((0.0, 30.0))
    fails = [dice.uniform(0, work) for _ in range(dice.choice((0, 0, 0, 1, 3)))]
    declared = dice.choice((None, 1.0, 1.5, 4.0))
    redone = work + len(fails) * (work + starting) + starting
    cluster = dice.choice(("", "c1"))
    named: tuple[str, ...] = ()
    select = None
    at_one = [place for place in allowed if place.cluster == "c1"]
    if at_one and dice.random() < 0.4:
        named = tuple(place.id for place in dice.sample(at_one, dice.randint(1, min(4, len(at_one)))))
    else:
        select = choose_some(dice, places)
    ask = WaitingTask(
        name, owner, dice.choice(("ann", "bob")), cluster, dice.uniform(0, 30 * HOUR), named, select,
        priority=dice.choice(NUMBERS), preemptible=dice.random() < 0.5,
        max_run=None if declared is None else 4 * redone * declared, expected_run=dice.choice((None, work)),
    )  # fmt: skip
    return Job(ask, work, every, starting, fails, dice.random() < 0.5, dice.choice((0.0, 0.0, 600.0, 3600.0)))


def choose_some(dice: random.Random, places: list[EnvironmentInfo]) -> Select:
    kind: dict[str, object] = {}
    if dice.random() < 0.3:
        kind["gpu_types"] = (dice.choice(places).gpu_type,)
    if dice.random() < 0.2:
        kind["zones"] = (dice.choice(places).zone,)
    if dice.random() < 0.2:
        kind["same_zone"] = True
    if dice.random() < 0.1:
        kind["labels"] = {"disk": "fast"}
    if dice.random() < 0.1:
        kind["exclude"] = (dice.choice(places).id,)
    if dice.random() < 0.3:
        return Select(total_gpus=dice.randint(1, 14), **kind)
    return Select(nodes=dice.choice((1, 1, 1, 2, 3, 5)), gpus_per_node=dice.choice((None, 1, 2, 4)), **kind)


def project(dice: random.Random, name: str, places: list[EnvironmentInfo], names: list[str]) -> Project:
    total = sum(place.gpus for place in places)
    shared = sum(place.gpus for place in places if place.shared)
    maybe: dict[str, object] = {}
    if dice.random() < 0.5:
        maybe["guaranteed"] = dice.randint(0, shared // len(names))
    if dice.random() < 0.2:
        maybe["most_gpus"] = dice.randint(total // 3, total)
    if dice.random() < 0.2:
        maybe["most_tasks"] = dice.randint(1, 5)
    if dice.random() < 0.2:
        maybe["each_user"] = Quota(most_gpus=dice.randint(total // 3, total), most_tasks=dice.choice((None, 2)))
    return Project(name, name, weight=dice.choice((1.0, 1.0, 3.0)), **maybe)


def reservation(
    dice: random.Random, name: str, names: list[str], places: list[EnvironmentInfo], last: float
) -> Reservation:
    begins = dice.uniform(0, last)
    some = frozenset(place.id for place in dice.sample(places, dice.randint(1, max(1, len(places) // 3))))
    return Reservation(name, some, begins, begins + dice.uniform(HOUR, 8 * HOUR), dice.choice((None, *names)))


def trouble(
    dice: random.Random, names: list[str], places: list[EnvironmentInfo], last: float
) -> list[tuple[float, Callable[[Engine], None]]]:
    found: list[tuple[float, Callable[[Engine], None]]] = []
    for _ in range(dice.randint(0, 6)):
        moment, broken = dice.uniform(0, last), dice.choice(places).id
        found.append((moment, lambda engine, broken=broken: engine.set_usable(broken, False)))
        found.append(
            (moment + dice.uniform(60, 6 * HOUR), lambda engine, broken=broken: engine.set_usable(broken, True))
        )
    for number in range(dice.randint(0, 2)):
        moment, window = dice.uniform(0, last), reservation(dice, f"late{number}", names, places, last)
        if window.begins > moment:
            found.append((moment, lambda engine, window=window: engine.reserve(window)))
    for _ in range(dice.randint(0, 2)):
        moment, name, gpus = dice.uniform(0, last), dice.choice(names), dice.randint(1, 20)
        found.append((moment, lambda engine, name=name, gpus=gpus: engine.change(name, most_gpus=gpus)))
        found.append(
            (moment + dice.uniform(60, 6 * HOUR), lambda engine, name=name: engine.change(name, most_gpus=None))
        )
    return found
