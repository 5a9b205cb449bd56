"""Assigns nodes to a task that requested capacity: cut to the request, checked by every rule, and stored."""

from collections.abc import Sequence
from dataclasses import replace

from apps.clusters import selectors
from apps.clusters.models import DevEnvironment
from apps.training.core import transitions
from apps.training.core.engine_access import get_backend, resolve_run_locations
from apps.training.core.task_store import build_job_columns, store_nodes
from apps.training.models import Task
from apps.training.queue import load
from fermi.jobs.spec import Elastic, JobSpec
from fermi.planning import elastic_sizes, validate
from fermi.planning.request import trim_nodes
from fermi.scheduler.snapshot import EnvironmentInfo, Select, WaitingTask


class PlacementCheck:
    """Whether a waiting task can run on these environments, master first; the scheduler calls it. Each task's job is
    loaded once, and each set of environments is checked once."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task | None] = {}
        self.known: dict[tuple[str, ...], bool] = {}

    def __call__(self, waiting: WaitingTask, places: Sequence[EnvironmentInfo]) -> bool:
        if waiting.select is None:
            return True
        key = (waiting.task, *(place.id for place in places))
        if key not in self.known:
            self.known[key] = self._fits(waiting, [place.id for place in places])
        return self.known[key]

    def _fits(self, waiting: WaitingTask, keys: Sequence[str]) -> bool:
        if waiting.task not in self.tasks:
            self.tasks[waiting.task] = Task.objects.select_related("cluster").filter(pk=waiting.task).first()
        task = self.tasks[waiting.task]
        return task is None or ((job := build_placed_job(task, keys)) is not None and _can_run(task, job))


def build_placed_job(task: Task, keys: Sequence[str]) -> JobSpec | None:
    """Return the job as it runs on these environments, the first of which is its master; None if one is gone."""
    found = DevEnvironment.objects.select_related("zone").in_bulk(list(keys))
    select = load.load_select(task.select)
    if select is None or len(found) != len(keys):
        return None
    return place_job(JobSpec.from_json(task.spec), select, [found[key] for key in keys], _get_world_size(task))


def place_job(job: JobSpec, select: Select, environments: Sequence[DevEnvironment], world_size: int | None) -> JobSpec:
    """Return the job on these environments, cut to the requested capacity."""
    nodes = trim_nodes(select, selectors.build_nodes(environments), world_size)
    elastic = job.elastic and Elastic(job.elastic.min_nodes, job.elastic.max_nodes)
    return elastic_sizes.set_full_size(replace(job, nodes=nodes, master=nodes[0].id, elastic=elastic))


def apply_selection(task: Task, keys: Sequence[str]) -> bool:
    """Store that the task runs on these environments, in the caller's transaction; return False if it cannot."""
    job = build_placed_job(task, keys)
    if job is None:
        return False
    Task.objects.filter(pk=task.pk).update(**build_job_columns(job))
    task.nodes.all().delete()
    store_nodes(task, job)
    told = {"environments": ", ".join(node.name for node in job.nodes), "master": job.head.name}
    transitions.record_event(task.pk, task.attempt, "state", "ENVIRONMENTS_CHOSEN", told)
    return True


def _get_world_size(task: Task) -> int | None:
    config = task.request.get("distributedConfig") or {}
    found = config.get("worldSize")
    return found if isinstance(found, int) else None


def _can_run(task: Task, job: JobSpec) -> bool:
    checked = replace(job, resume_from="")  # where it goes on from has nothing to do with where it runs
    checked, impossible = resolve_run_locations(task.cluster, checked)
    return not (impossible or validate.find_problems(checked) or get_backend(task.cluster).problems(checked))
