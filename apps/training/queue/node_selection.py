"""Assigns nodes to a task that requested capacity: cut to the request, checked by every rule, and stored."""

from collections.abc import Sequence
from dataclasses import replace

from apps.clusters import selectors
from apps.clusters.models import DevEnvironment
from apps.training.core import transitions
from apps.training.core.engine_access import backend_for, settled
from apps.training.core.task_store import columns, store_nodes
from apps.training.models import Task
from apps.training.queue import load
from fermi.jobs.spec import Elastic, JobSpec
from fermi.planning import elastic_sizes, validate
from fermi.planning.request import cut
from fermi.scheduler.snapshot import Place, Select, Waiting


class Fits:
    """Whether a waiting task can run on these environments, master first; the scheduler calls it. Each task's job is
    loaded once, and each set of environments is checked once."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task | None] = {}
        self.known: dict[tuple[str, ...], bool] = {}

    def __call__(self, waiting: Waiting, places: Sequence[Place]) -> bool:
        if waiting.select is None:
            return True
        key = (waiting.task, *(place.id for place in places))
        if key not in self.known:
            self.known[key] = self._fits(waiting, [place.id for place in places])
        return self.known[key]

    def _fits(self, waiting: Waiting, keys: Sequence[str]) -> bool:
        if waiting.task not in self.tasks:
            self.tasks[waiting.task] = Task.objects.select_related("cluster").filter(pk=waiting.task).first()
        task = self.tasks[waiting.task]
        return task is None or ((job := placed(task, keys)) is not None and _runs(task, job))


def placed(task: Task, keys: Sequence[str]) -> JobSpec | None:
    """Return the job as it runs on these environments, the first of which is its master; None if one is gone."""
    found = DevEnvironment.objects.select_related("zone").in_bulk(list(keys))
    select = load.selected(task.select)
    if select is None or len(found) != len(keys):
        return None
    return on(JobSpec.from_json(task.spec), select, [found[key] for key in keys], _world_size(task))


def on(job: JobSpec, select: Select, environments: Sequence[DevEnvironment], world_size: int | None) -> JobSpec:
    """Return the job on these environments, cut to the requested capacity."""
    nodes = cut(select, selectors.snapshots(environments), world_size)
    elastic = job.elastic and Elastic(job.elastic.min_nodes, job.elastic.max_nodes)
    return elastic_sizes.begin(replace(job, nodes=nodes, master=nodes[0].id, elastic=elastic))


def settle(task: Task, keys: Sequence[str]) -> bool:
    """Store that the task runs on these environments, in the caller's transaction; return False if it cannot."""
    job = placed(task, keys)
    if job is None:
        return False
    Task.objects.filter(pk=task.pk).update(**columns(job))
    task.nodes.all().delete()
    store_nodes(task, job)
    told = {"environments": ", ".join(node.name for node in job.nodes), "master": job.head.name}
    transitions.record(task.pk, task.attempt, "state", "ENVIRONMENTS_CHOSEN", told)
    return True


def _world_size(task: Task) -> int | None:
    config = task.request.get("distributedConfig") or {}
    found = config.get("worldSize")
    return found if isinstance(found, int) else None


def _runs(task: Task, job: JobSpec) -> bool:
    checked = replace(job, resume_from="")  # where it goes on from has nothing to do with where it runs
    checked, impossible = settled(task.cluster, checked)
    return not (impossible or validate.problems(checked) or backend_for(task.cluster).problems(checked))
