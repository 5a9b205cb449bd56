"""The limits and the budget of a task's project, where an engine's own queue decides everything else. Between the look
and the mark nobody else of the project begins: its row is locked."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from django.db import connection

from apps.accounts.models import Project
from apps.common.clock import now
from apps.scheduling import selectors as sharing
from apps.scheduling.models import UserLimits
from apps.training.models import Node, Task
from apps.training.queue import load
from apps.training.states import WITH_ATTEMPT
from fermi.launch.schedule import limits
from fermi.launch.schedule.scene import Held, Waiting
from fermi.launch.spec import Problem


class OverLimit(Exception):
    """`problem`: the limit that the task would break if it was submitted now."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.code)
        self.problem = problem


def check(task: Task, environments: Sequence[str]) -> None:
    """In the transaction that begins its attempt. Raises OverLimit."""
    if sharing.limits_of(task.project) is None and not UserLimits.objects.filter(project=task.project).exists():
        return
    if connection.features.has_select_for_update:
        Project.objects.select_for_update(no_key=True).filter(pk=task.project_id).values_list("pk").first()
    moment = now()
    held = [one for one in _held(task, moment) if one.project == task.project_id]
    known = {*environments, *(key for one in held for key in one.places)}
    places = {place.id: place for place in load.places(among=known)}
    project = sharing.projects(moment, held, places.values()).get(task.project_id)
    asked = Waiting(
        task=task.pk,
        project=task.project_id,
        user=task.owner.username,
        cluster=task.cluster_id,
        since=moment.timestamp(),
        named=tuple(environments),
        preemptible=task.preemptible,
    )
    chosen = [places[key] for key in environments if key in places]
    if problem := limits.problem(asked, project, limits.Use(held, places), chosen):
        raise OverLimit(problem)


def _held(task: Task, moment: datetime) -> Iterator[Held]:
    """By others: also what several tasks of an engine's queue have at once, of which a lease has only the first."""
    known = {task.pk}
    for one in load.held(moment):
        if one.task not in known:
            known.add(one.task)
            yield one
    rows = Node.objects.filter(task__project=task.project_id, task__state__in=WITH_ATTEMPT, environment__isnull=False)
    found: dict[tuple[str, str], list[str]] = {}
    for key, user, environment in rows.values_list("task_id", "task__owner__username", "environment_id"):
        if key not in known:
            found.setdefault((key, user), []).append(str(environment))
    for (key, user), environments in found.items():
        yield Held(key, task.project_id, user, tuple(environments), moment.timestamp())
