"""Checks the limits and the budget of a task's project, where an engine's own queue decides everything else. The
project's row is locked, so no other task of the project starts between the check and the start."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from django.db import connection

from apps.accounts.models import Project
from apps.common.clock import now
from apps.scheduling import selectors
from apps.scheduling.models import UserLimits
from apps.training.core.engine_access import filter_engine_scheduled, list_clusters_with_queue
from apps.training.models import Attempt, Node, Task
from apps.training.queue import load
from fermi.jobs.spec import Problem
from fermi.scheduler import limits
from fermi.scheduler.snapshot import RunningTask, WaitingTask


class OverLimitError(Exception):
    """Raised if the task would break a limit if it was submitted now; `problem` says which."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.code)
        self.problem = problem


def check_limits(task: Task, environments: Sequence[str]) -> None:
    """Raise OverLimitError if the task would break a limit on these environments. Call it in the transaction that
    starts its attempt."""
    if selectors.get_limits(task.project) is None and not UserLimits.objects.filter(project=task.project).exists():
        return
    if connection.features.has_select_for_update:
        Project.objects.select_for_update(no_key=True).filter(pk=task.project_id).values_list("pk").first()
    moment = now()
    held = list(_list_project_holds(task, moment))
    known = {*environments, *(key for one in held for key in one.places)}
    places = {place.id: place for place in load.load_environments(ids=known)}
    project = selectors.read_projects(moment, held, places.values()).get(task.project_id)
    asked = WaitingTask(
        task=task.pk,
        project=task.project_id,
        user=task.owner.username,
        cluster=task.cluster_id,
        since=moment.timestamp(),
        named=tuple(environments),
        preemptible=task.preemptible,
    )
    chosen = [places[key] for key in environments if key in places]
    if problem := limits.find_broken_limit(asked, project, limits.GpuUsage(held, places), chosen):
        raise OverLimitError(problem)


def _list_project_holds(task: Task, moment: datetime) -> Iterator[RunningTask]:
    """Yield what other tasks of the project hold. In an engine's queue several tasks may have the same environment, of
    which a lease shows only the first; a task that waits there counts with its GPUs, and has spent nothing yet."""
    engines = list_clusters_with_queue()
    theirs = filter_engine_scheduled(engines).filter(project=task.project_id)
    live = Attempt.objects.filter(task__in=theirs, ended_at=None)
    begun = dict(live.exclude(task=task).values_list("task_id", "running_at"))
    environments: dict[tuple[str, str], list[str]] = {}
    rows = Node.objects.filter(task__in=begun, environment__isnull=False)
    for key, user, environment in rows.values_list("task_id", "task__owner__username", "environment_id"):
        environments.setdefault((key, user), []).append(str(environment))
    for (key, user), places in environments.items():
        since = begun[key] or moment
        yield RunningTask(key, task.project_id, user, tuple(places), since.timestamp())
    for one in load.load_running_tasks(moment):
        if one.project == task.project_id and one.task != task.pk and one.task not in begun:
            yield one
