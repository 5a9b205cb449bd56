"""Beside a running rank: on its node, with its variables, in its working directory. Not with the task's secrets: what
was rendered names none, and a rank's own memory is nobody's to read out."""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from apps.accounts import access
from apps.accounts.models import Role, User
from apps.clusters.models import DevEnvironment
from apps.common.errors import ApiError
from apps.doors import streams
from apps.doors.requests import Request
from apps.training.ground.launching import backend_for, handle_for
from apps.training.models import Attempt, Task
from fermi.launch.backends.base import Beside
from fermi.launch.spec import Rendered


@dataclass(frozen=True, slots=True)
class Place:
    project: str
    environment: DevEnvironment
    beside: Beside

    async def dial(self, asked: Request) -> tuple[socket.socket, dict[str, Any]]:
        """The caller's own variables and directory come before the rank's."""
        whole = {**asked, "env": {**self.beside.env, **asked["env"]}, "cwd": asked["cwd"] or self.beside.cwd}
        if self.beside.dial is None:
            return await streams.socket_to(self.environment, whole)
        return await streams.by(_asking(self.beside.dial, whole))


def _asking(dial: Callable[[], socket.socket], asked: Request) -> Callable[[], tuple[socket.socket, dict[str, Any]]]:
    return lambda: streams.asked(dial(), asked)


def place(user: User, task_id: str, rank: int) -> Place:
    """404 for strangers, 403 for viewers, 409 where there is nothing to be beside. In a thread."""
    rows = Task.objects.select_related("cluster")
    task = access.get(rows, user, task_id, Role.MEMBER)
    if rank >= task.world_size:
        raise ApiError(404, "RANK_UNKNOWN", rank=rank, high=task.world_size - 1)
    attempt = Attempt.objects.filter(task=task, number=task.attempt, outcome="", running_at__isnull=False).first()
    if attempt is None:
        raise ApiError(409, "RANK_NOT_RUNNING", rank=rank, task=task.name)
    found = backend_for(task.cluster).beside(Rendered.from_json(attempt.plan), handle_for(task, attempt.number), rank)
    node = task.nodes.select_related("environment__cluster", "environment__hosted").get(node_rank=found.node_rank)
    if node.environment is None:
        raise ApiError(409, "RANK_NOT_RUNNING", rank=rank, task=task.name)
    return Place(task.project_id, node.environment, found)
