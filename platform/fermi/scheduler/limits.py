"""Checks what a project and its users may hold against what they hold now."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fermi.jobs.spec import Problem
from fermi.scheduler.order import count_requested_gpus
from fermi.scheduler.snapshot import EnvironmentInfo, Project, Quota, RunningTask, WaitingTask


class GpuUsage:
    """GPUs, and tasks that hold some, by project and by (project, user); it grows with what a pass starts."""

    def __init__(self, running: Iterable[RunningTask], places: Mapping[str, EnvironmentInfo]) -> None:
        self.places = places
        self.gpus: defaultdict[Any, int] = defaultdict(int)
        self.tasks: defaultdict[Any, int] = defaultdict(int)
        self.shared: defaultdict[str, int] = defaultdict(int)
        for one in running:
            self.add(one.project, one.user, [places[key] for key in one.places if key in places])

    def add(self, project: str, user: str, places: Iterable[EnvironmentInfo]) -> None:
        gpus = 0
        for place in places:
            gpus += place.gpus
            if place.shared:
                self.shared[project] += place.gpus
        for key in (project, (project, user)):
            self.gpus[key] += gpus
            self.tasks[key] += 1


class Guarantees:
    """Which projects hold more shared GPUs than is guaranteed to them, now and once leaving tasks have left and those
    that they make room for have started. Where no project has a guarantee, none borrows."""

    def __init__(
        self, projects: Mapping[str, Project], running: Iterable[RunningTask], places: Mapping[str, EnvironmentInfo]
    ) -> None:
        self.projects, self.places = projects, places
        self.any = any(project.guaranteed is not None for project in projects.values())
        self.shared: defaultdict[str, int] = defaultdict(int)
        for one in running:
            if not one.leaving:
                self.add(one.project, [places[key] for key in one.places if key in places])

    def add(self, project: str, places: Iterable[EnvironmentInfo], times: int = 1) -> None:
        if self.any:
            self.shared[project] += times * count_shared_gpus(places)

    def get_guarantee(self, project: str) -> int:
        """Return the shared GPUs guaranteed to the project."""
        found = self.projects.get(project)
        return (found.guaranteed or 0) if found else 0

    def borrows(self, project: str, more_gpus: int = 0) -> bool:
        """Return whether the project holds more than its guarantee, with so many shared GPUs more."""
        return self.any and self.shared[project] + more_gpus > self.get_guarantee(project)

    def reclaims_guarantee(self, project: str, more_gpus: int) -> bool:
        """Return whether so many shared GPUs more are the project's own by guarantee."""
        return self.any and more_gpus > 0 and self.shared[project] + more_gpus <= self.get_guarantee(project)


def put_guaranteed_first(queue: Sequence[WaitingTask], guarantees: Guarantees) -> list[WaitingTask]:
    """Return the queue with those tasks first that, with what their project holds, stay within its guarantee: it is not
    reserved for others who would borrow it. A project's tasks keep their order."""
    if not guarantees.any:
        return list(queue)
    largest = max((place.gpus for place in guarantees.places.values()), default=0)
    sizes = {key: place.gpus if place.shared else 0 for key, place in guarantees.places.items()}
    asks: defaultdict[str, int] = defaultdict(int)
    own: list[WaitingTask] = []
    others: list[WaitingTask] = []
    beyond: set[str] = set()
    for task in queue:
        if task.project in beyond:
            others.append(task)
            continue
        select = task.select
        each = largest if select and not select.total_gpus and select.gpus_per_node is None else 0
        asks[task.project] += each * (select.nodes or 1) if select and each else count_requested_gpus(task, sizes)
        if guarantees.borrows(task.project, asks[task.project]):
            beyond.add(task.project)
            others.append(task)
        else:
            own.append(task)
    return own + others


def count_gpus(places: Iterable[EnvironmentInfo]) -> int:
    """Return the GPUs of the environments."""
    return sum(place.gpus for place in places)


def count_shared_gpus(places: Iterable[EnvironmentInfo]) -> int:
    """Return the GPUs of the shared ones of the environments."""
    return sum(place.gpus for place in places if place.shared)


def find_broken_limit(
    task: WaitingTask, project: Project | None, use: GpuUsage, chosen: Sequence[EnvironmentInfo] | None = None
) -> Problem | None:
    """Return the limit that the task would break if it started, on `chosen` where that is known already; None: none."""
    if project is None:
        return None
    if project.stopped is not None and not (project.only_preemptible and task.preemptible):
        return project.stopped
    name = project.name or project.id
    most = project.users.get(task.user, project.each_user)
    if _is_unlimited(project) and _is_unlimited(most):
        return None
    gpus = _count_requested_gpus(task, use) if chosen is None else count_gpus(chosen)
    key: Any = project.id
    if project.most_tasks is not None and use.tasks[key] >= project.most_tasks:
        return Problem("", "LIMIT_TASKS", _build_params(use.tasks[key], 1, project.most_tasks, project=name))
    if project.most_gpus is not None and use.gpus[key] + gpus > project.most_gpus:
        return Problem("", "LIMIT_GPUS", _build_params(use.gpus[key], gpus, project.most_gpus, project=name))
    if project.gpu_hours is not None and project.spent_hours >= project.gpu_hours:
        return Problem("", "LIMIT_GPU_HOURS", _build_params(project.spent_hours, gpus, project.gpu_hours, project=name))
    return _find_user_limit(task, project, most, gpus, use)


def _find_user_limit(task: WaitingTask, project: Project, quota: Quota, gpus: int, use: GpuUsage) -> Problem | None:
    key = (project.id, task.user)
    names = {"project": project.name or project.id, "user": task.user}
    if quota.most_tasks is not None and use.tasks[key] >= quota.most_tasks:
        return Problem("", "LIMIT_USER_TASKS", _build_params(use.tasks[key], 1, quota.most_tasks, **names))
    if quota.most_gpus is not None and use.gpus[key] + gpus > quota.most_gpus:
        return Problem("", "LIMIT_USER_GPUS", _build_params(use.gpus[key], gpus, quota.most_gpus, **names))
    spent = project.spent_by_user.get(task.user, 0.0)
    if quota.gpu_hours is not None and spent >= quota.gpu_hours:
        return Problem("", "LIMIT_USER_GPU_HOURS", _build_params(spent, gpus, quota.gpu_hours, **names))
    return None


def _is_unlimited(quota: Project | Quota) -> bool:
    return quota.most_gpus is None and quota.most_tasks is None and quota.gpu_hours is None


def has_limits(project: Project) -> bool:
    """Return whether the project has any limit."""
    return project.stopped is not None or not _is_unlimited(project) or has_user_limits(project)


def has_user_limits(project: Project) -> bool:
    """Return whether the project limits its users."""
    return bool(project.users) or not _is_unlimited(project.each_user)


def _count_requested_gpus(task: WaitingTask, use: GpuUsage) -> int:
    if task.select is not None:
        return count_requested_gpus(task, {})
    return sum(use.places[key].gpus for key in task.named if key in use.places)


def _build_params(in_use: float, requested: int, high: float, **names: str) -> dict[str, Any]:
    return {
        **names,
        "found": round(in_use, 1) if isinstance(in_use, float) else in_use,
        "asked": requested,
        "high": high,
    }
