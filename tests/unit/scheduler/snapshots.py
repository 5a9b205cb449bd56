"""Scenes for tests: small by hand, and any by hypothesis."""

from typing import Any

from hypothesis import strategies as st

from fermi.scheduler.snapshot import (
    EnvironmentInfo,
    Project,
    Reservation,
    RunningTask,
    SchedulerSnapshot,
    Select,
    WaitingTask,
)

NOW = 1_000_000.0
HOUR = 3600.0


def place(name: str, gpus: int = 4, **more: Any) -> EnvironmentInfo:
    values = {"project": "lab", "cluster": "c", "zone": "a", "gpu_type": "A100", "shared": True, **more}
    return EnvironmentInfo(name, name, gpus=gpus, **values)


def waiting(name: str, *named: str, **more: Any) -> WaitingTask:
    values = {"project": "lab", "user": "ann", "cluster": "c", "since": NOW - 60, **more}
    return WaitingTask(name, named=named, name=name, **values)


def held(name: str, *places: str, **more: Any) -> RunningTask:
    values = {"project": "lab", "user": "ann", "since": NOW - HOUR, **more}
    return RunningTask(name, places=places, name=name, **values)


def snapshot(
    waiting: Any = (), places: Any = (), held: Any = (), projects: Any = (), reservations: Any = (), now: float = NOW
) -> SchedulerSnapshot:
    by_id = {project.id: project for project in projects}
    return SchedulerSnapshot(now, tuple(waiting), tuple(held), tuple(places), by_id, tuple(reservations))


PROJECTS = ("lab", "shop", "zoo")
ZONES = ("a", "b")
sizes = st.sampled_from((0, 1, 2, 4, 6, 8))
runs = st.none() | st.sampled_from((600.0, HOUR, 5 * HOUR, 40 * HOUR))


@st.composite
def selects(draw: st.DrawFn) -> Select:
    types = draw(st.sampled_from(((), ("A100",), ("A100", "V100"))))
    zones = draw(st.sampled_from(((), (), ("a",), ("zone b",))))
    same = draw(st.booleans())
    if draw(st.booleans()):
        nodes = draw(st.none() | st.integers(1, 3))
        return Select(nodes, None, draw(st.integers(1, 20)), types, zones, same)
    each = draw(st.sampled_from((None, 1, 2, 4)))
    on_gpus = each is None and draw(st.booleans())
    return Select(draw(st.integers(1, 4)), each, None, types, zones, same, on_gpus=on_gpus)


@st.composite
def fleets(draw: st.DrawFn, most: int = 8, usable: bool = False) -> tuple[EnvironmentInfo, ...]:
    return tuple(
        place(
            f"e{i}",
            draw(sizes),
            project=draw(st.sampled_from(PROJECTS)),
            zone=(zone := draw(st.sampled_from(ZONES))),
            zone_name=f"zone {zone}",
            gpu_type=draw(st.sampled_from(("A100", "V100"))),
            shared=draw(st.sampled_from((True, True, False))),
            usable=usable or draw(st.sampled_from((True, True, True, False))),
            health=draw(st.sampled_from((0, 0, 1))),
            link=draw(st.sampled_from(("", "x", "y"))),
        )
        for i in range(draw(st.integers(1, most)))
    )


@st.composite
def snapshots(draw: st.DrawFn, most: int = 10, reserved: bool = True) -> SchedulerSnapshot:
    places = draw(fleets())
    ids = [one.id for one in places]
    left = draw(st.permutations(ids))[: draw(st.integers(0, len(ids)))]
    holders = []
    while left:
        some, left = left[: draw(st.integers(1, 3))], left[3:]
        since = NOW - draw(st.sampled_from((60.0, HOUR, 30 * HOUR)))
        until = draw(st.none() | st.sampled_from((HOUR, 7 * HOUR, 50 * HOUR)))
        holders.append(
            held(
                f"h{len(holders)}", *some, project=draw(st.sampled_from(PROJECTS)), since=since,
                user=draw(st.sampled_from(("ann", "bob"))), priority=draw(st.sampled_from((-1, 0, 1))),
                preemptible=draw(st.booleans()), min_run=draw(st.sampled_from((0.0, 300.0, 10 * HOUR))),
                until=None if until is None else NOW + until, leaving=draw(st.sampled_from((False, False, True))),
                saved_at=draw(st.none() | st.just(NOW - 30)),
            )
        )  # fmt: skip
    tasks = []
    for i in range(draw(st.integers(0, most))):
        select = draw(st.none() | selects())
        named = () if select else tuple(draw(st.lists(st.sampled_from(ids), min_size=1, max_size=3, unique=True)))
        tasks.append(
            waiting(
                f"t{i}", *named, select=select, project=draw(st.sampled_from(PROJECTS)),
                user=draw(st.sampled_from(("ann", "bob"))), priority=draw(st.sampled_from((-1, 0, 0, 1, 100))),
                since=NOW - draw(st.integers(0, 100)) * HOUR, position=draw(st.none() | st.just(NOW - 9e5 + i)),
                preemptible=draw(st.booleans()), max_run=draw(runs),
            )
        )  # fmt: skip
    count = st.none() | st.integers(0, 20)
    projects = [
        Project(
            one, one, weight=draw(st.integers(1, 3)), used=draw(st.integers(0, 100)) * HOUR, guaranteed=draw(count),
            most_gpus=draw(count), most_tasks=draw(count),
        )
        for one in PROJECTS
    ]  # fmt: skip
    windows = []
    for i in range(draw(st.integers(0, 2)) if reserved else 0):
        begins = NOW + draw(st.sampled_from((-HOUR, HOUR, 6 * HOUR)))
        some = frozenset(draw(st.lists(st.sampled_from(ids), min_size=1, max_size=4)))
        owner = draw(st.none() | st.sampled_from(PROJECTS))
        windows.append(Reservation(f"r{i}", some, begins, begins + 4 * HOUR, owner))
    return snapshot(tasks, places, holders, projects, windows)
