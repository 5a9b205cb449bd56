"""The GPUs at this moment: how many there are, which tasks hold them, and which are idle."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from apps.clusters.models import EnvironmentStatus
from apps.overview import gpu_use
from apps.overview.scope import Scope
from apps.training.public import Attempt, Node, Task, TaskState, filter_engine_scheduled, list_clusters_with_queue

OTHERS_KEY = ""
"""Key of all projects, or users, that the user may not see."""


class MachineRow(NamedTuple):
    id: str
    name: str
    project: str
    zone: str
    gpu_type: str
    gpus: int
    status: str
    cordoned: bool
    cluster: str
    holder: str | None
    since: datetime | None


class Holder(NamedTuple):
    id: str
    name: str
    project: str
    project_name: str
    owner: str
    state: str


class VisibleMachine(NamedTuple):
    """A machine with the task that holds it; None if none does, or if the user may not see it."""

    machine: MachineRow
    holder: Holder | None
    use: gpu_use.GpuUse


class GpuCount:
    """Counts of GPUs in one row."""

    def __init__(self, key: str, name: str) -> None:
        self.key, self.name = key, name
        self.total = self.out = self.held = self.busy = self.idle = self.unknown = 0

    def add(self, visible: VisibleMachine) -> None:
        machine = visible.machine
        self.total += machine.gpus
        if machine.holder:
            self.held += machine.gpus
            self.busy += visible.use.busy
            self.idle += visible.use.idle
            self.unknown += machine.gpus - visible.use.busy - visible.use.idle
        elif machine.status != EnvironmentStatus.RUNNING or machine.cordoned:
            self.out += machine.gpus

    def serialize(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "name": self.name,
            "total": self.total,
            "outOfService": self.out,
            "free": self.total - self.held - self.out,
            "held": self.held,
            "busy": self.busy,
            "idle": self.idle,
            "unknown": self.unknown,
        }


def list_machines(scope: Scope, moment: datetime) -> list[VisibleMachine]:
    """Return all machines of the scope, with the tasks that hold them."""
    columns = (
        "id", "name", "project_id", "zone__name", "gpu_type", "gpu_count", "status", "cordoned", "cluster_id",
        "lease__holder", "lease__since",
    )  # fmt: skip
    machines = [MachineRow(*row) for row in scope.environments().order_by("name", "pk").values_list(*columns)]
    if deciding := list_clusters_with_queue():
        machines = list(_apply_engine_queues(machines, set(deciding)))
    held = {machine.holder for machine in machines if machine.holder}
    rows = Task.objects.filter(pk__in=held)
    names = ("id", "name", "project_id", "project__name", "owner__username", "state")
    holders = {row[0]: Holder(*row) for row in rows.values_list(*names)}
    if scope.project:
        own, machines = scope.project, list(machines)
        machines = [
            one
            for one in machines
            if one.project == own or (one.holder in holders and holders[one.holder].project == own)
        ]
    running = {
        one.id: one.since
        for one in machines
        if one.since and one.gpus and one.holder in holders and holders[one.holder].state == TaskState.RUNNING
    }
    known = gpu_use.read_gpu_use(running, {one.id: one.gpus for one in machines}, moment)
    seen = _list_known_projects(scope)
    found = []
    for machine in machines:
        holder = holders.get(machine.holder or "")
        named = holder if holder and (seen is None or holder.project in seen) else None
        found.append(VisibleMachine(machine, named, known.get(machine.id, gpu_use.UNKNOWN_USE)))
    return found


def count_gpus(visible: Iterable[VisibleMachine]) -> dict[str, Any]:
    """Return the counts of GPUs in all, and by zone, type, project and user."""
    visible = list(visible)
    total = GpuCount("", "")
    for one in visible:
        total.add(one)
    held = [one for one in visible if one.machine.holder]
    return {
        "gpus": total.serialize(),
        "zones": _count_by(visible, lambda one: (one.machine.zone, one.machine.zone)),
        "types": _count_by((one for one in visible if one.machine.gpus), lambda one: (one.machine.gpu_type,) * 2),
        "projects": _count_by(
            held, lambda one: (one.holder.project, one.holder.project_name) if one.holder else ("", "")
        ),
        "people": _count_by(held, lambda one: (one.holder.owner,) * 2 if one.holder else (OTHERS_KEY, "")),
    }


def _count_by(
    visible: Iterable[VisibleMachine], key: Callable[[VisibleMachine], tuple[str, str]]
) -> list[dict[str, Any]]:
    tallies: dict[str, GpuCount] = {}
    for one in visible:
        name = key(one)
        tallies.setdefault(name[0], GpuCount(*name)).add(one)
    return [one.serialize() for one in sorted(tallies.values(), key=lambda one: (-one.total, one.name))]


def _list_known_projects(scope: Scope) -> set[str] | None:
    """Return the projects whose tasks the user may see; None: all."""
    if scope.all:
        return None
    return set(scope.user.projects.values_list("pk", flat=True))


def _apply_engine_queues(machines: Iterable[MachineRow], deciding: set[str]) -> Iterable[MachineRow]:
    """Yield the machines with holders corrected: where an engine's own queue decides, a task holds its environments
    while its ranks run. A task that runs inside of an environment has it in any case."""
    machines = list(machines)
    theirs = filter_engine_scheduled(deciding)
    held = {one.holder for one in machines if one.cluster in deciding and one.holder}
    marked = set(theirs.filter(pk__in=held).values_list("pk", flat=True))
    attempts = Attempt.objects.filter(task__in=theirs, ended_at=None, running_at__isnull=False)
    since: dict[str, Any] = dict(attempts.values_list("task_id", "running_at"))
    nodes = Node.objects.filter(task__in=since, environment__isnull=False).values_list("environment_id", "task_id")
    by_machine: Mapping[str, list[str]] = defaultdict(list)
    for environment, task in nodes:
        by_machine[str(environment)].append(task)
    for one in machines:
        if one.cluster not in deciding or (one.holder and one.holder not in marked):
            yield one
        elif tasks := by_machine.get(one.id):
            first = min(tasks, key=lambda task: since[task])
            yield one._replace(holder=first, since=since[first])
        else:
            yield one._replace(holder=None, since=None)
