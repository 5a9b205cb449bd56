"""In which order tasks that wait are asked."""

from collections.abc import Iterable, Mapping

from fermi.launch.schedule.scene import Held, Project, Waiting, priority_of


def order(
    waiting: Iterable[Waiting], held: Iterable[Held], projects: Mapping[str, Project], now: float
) -> list[Waiting]:
    """By priority class, then the fair share of the project, then age."""
    return sorted(waiting, key=lambda one: (-priority_of(one.priority), one.since, one.task))
