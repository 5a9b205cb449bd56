"""Access next to a running rank: on its node, with its variables, in its working directory. Not with the task's
secrets: what was rendered contains none, and a rank's memory is not read."""

import socket
from dataclasses import dataclass
from typing import Any

from apps.accounts import access
from apps.accounts.models import Role, User
from apps.clusters.models import DevEnvironment
from apps.common.errors import ApiError
from apps.proxy import envd_streams
from apps.proxy.envd_requests import Request
from apps.training.core.engine_access import backend_for, handle_for
from apps.training.models import Attempt, Task
from fermi.engines.base import Beside
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Rendered

NOT_RUNNING = "RANK_NOT_RUNNING"


@dataclass(frozen=True, slots=True)
class Place:
    """A rank that a channel can start commands next to."""

    project: str
    environment: DevEnvironment
    beside: Beside

    async def dial(self, asked: Request) -> tuple[socket.socket, dict[str, Any]]:
        """Start a command; the caller's own variables and directory precede the rank's."""
        return await envd_streams.by(lambda: envd_streams.dialled(self.beside.dial, asked))


def place(user: User, task_id: str, rank: int) -> Place:
    """Return the target of a rank. Raises ApiError: 404 for users without access, 403 for viewers, 409 if the rank does
    not run. Call it in a thread."""
    rows = Task.objects.select_related("cluster")
    task = access.get(rows, user, task_id, Role.MEMBER)
    if rank >= task.world_size:
        raise ApiError(404, "RANK_UNKNOWN", rank=rank, high=task.world_size - 1)
    attempt = Attempt.objects.filter(task=task, number=task.attempt, outcome="", running_at__isnull=False).first()
    if attempt is None:
        raise ApiError(409, NOT_RUNNING, rank=rank, task=task.name)
    plan, handle = Rendered.from_json(attempt.plan), handle_for(task, attempt.number)
    try:
        found = backend_for(task.cluster).beside(plan, handle, rank)
    except BackendError as error:
        if error.code != NOT_RUNNING and not error.permanent:
            raise
        params: dict[str, Any] = {**error.params, "rank": rank, "task": task.name}
        raise ApiError(409, error.code, **params) from error
    node = task.nodes.select_related("environment__cluster", "environment__hosted").get(node_rank=found.node_rank)
    if node.environment is None:
        raise ApiError(409, NOT_RUNNING, rank=rank, task=task.name)
    return Place(task.project_id, node.environment, found)
