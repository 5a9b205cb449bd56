"""What of a task's own variables its reader is not shown: from viewers, values that look like keys are hidden. Whoever
may submit to the project may read them."""

from typing import Any

from apps.accounts import access
from apps.accounts.models import Role, User
from apps.training.models import Task
from fermi.launch import credentials


def hidden(task: Task, user: User | None) -> dict[str, str]:
    """Those variables, with their values. None: whoever it is, as little as a viewer."""
    if user and access.role_in(user, task.project_id) is not Role.VIEWER:
        return {}
    env = task.request.get("env") or {}
    return {name: value for name, value in env.items() if credentials.looks_secret(name, value)}


def request(task: Task, user: User) -> dict[str, Any]:
    """The task's request, as `user` may read it."""
    found = hidden(task, user)
    return {**task.request, "env": credentials.masked(task.request["env"])} if found else task.request
