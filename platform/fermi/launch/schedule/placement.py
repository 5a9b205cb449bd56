"""Which environments a task gets that asked for capacity."""

from collections.abc import Iterable, Sequence

from fermi.launch.schedule.scene import Place, Select, Waiting
from fermi.launch.spec import Problem


def matches(select: Select, place: Place) -> bool:
    """Whether the environment is of the kind that was asked for, whoever has it now."""
    return (
        place.id not in select.exclude
        and (not select.gpu_types or place.gpu_type in select.gpu_types)
        and (not select.zones or place.zone in select.zones or place.zone_name in select.zones)
        and place.gpus >= (select.gpus_per_node or 0)
        and all(place.labels.get(name) == value for name, value in select.labels.items())
    )


def open_to(project: str, cluster: str, place: Place) -> bool:
    """Whether tasks of the project may run there. `cluster` empty: any."""
    return place.usable and (place.shared or place.project == project) and cluster in ("", place.cluster)


def choose(task: Waiting, free: Iterable[Place]) -> Sequence[Place]:
    """The environments that suit best, master first; empty where they do not suffice."""
    assert task.select is not None
    select = task.select
    fit = [place for place in free if open_to(task.project, task.cluster, place) and matches(select, place)]
    if select.total_gpus is None:
        count = select.nodes or 1
        return fit[:count] if len(fit) >= count else []
    chosen: list[Place] = []
    for place in sorted(fit, key=lambda place: -place.processes):
        if sum(one.processes for one in chosen) >= select.total_gpus:
            break
        chosen.append(place)
    enough = sum(one.processes for one in chosen) >= select.total_gpus
    return chosen if enough and (select.nodes is None or len(chosen) == select.nodes) else []


def possible(select: Select, project: str, cluster: str, places: Iterable[Place]) -> Problem | None:
    """What is wrong with a request that even an empty fleet could not meet."""
    return None


def text(select: Select) -> str:
    return str(select)


def explain(task: Waiting, chosen: Sequence[Place], free: Iterable[Place]) -> list[Problem]:
    """Why these."""
    return []
