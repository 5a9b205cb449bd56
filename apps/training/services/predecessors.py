"""Checks the tasks that a new task is to come after."""

from collections.abc import Iterator

from apps.accounts import access
from apps.accounts.models import Project, User
from apps.training.core import predecessors
from apps.training.models import Task
from fermi.jobs.spec import AFTER_CHECKPOINT, AFTER_OUTPUTS, Problem
from fermi.planning.request import NEW, TaskRequest

FIELD = "after"


def find_problems(user: User, project: Project, request: TaskRequest) -> Iterator[Problem]:
    """Yield the problems: a task that `user` may not see, or that is of another project, is like one that does not
    exist."""
    if not request.after:
        yield from _find_unfilled(request)
        return
    keys = [one.task for one in request.after]
    rows = access.filter_visible(Task.trainings.filter(project=project), user).filter(pk__in=keys)
    states = dict(rows.values_list("pk", "state"))
    for number, one in enumerate(request.after):
        field = f"{FIELD}.{number}.task"
        if one.task in keys[:number]:
            yield Problem(field, "AFTER_TWICE", {"task": one.task})
        elif one.task not in states:
            yield Problem(field, "AFTER_UNKNOWN", {"task": one.task, "project": project.name})
        elif predecessors.is_met(one.on, states[one.task]) is False:
            params = {"task": one.task, "on": one.on, "status": states[one.task]}
            yield Problem(f"{FIELD}.{number}.on", "AFTER_IMPOSSIBLE", params)
    if request.launch_mode == NEW:
        yield Problem(FIELD, "AFTER_WITH_NEW")


def _find_unfilled(request: TaskRequest) -> Iterator[Problem]:
    """Yield the problem of a placeholder that would stay as it is, as the task comes after none."""
    entry = request.entrypoint
    texts = [*(entry.args if entry else ()), *(entry.command if entry else ()), *request.env.values()]
    if found := next((name for name in (AFTER_CHECKPOINT, AFTER_OUTPUTS) for text in texts if name in text), None):
        yield Problem(FIELD, "AFTER_REQUIRED", {"placeholder": found})
