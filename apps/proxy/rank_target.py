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
from apps.proxy.envd_requests import EnvdRequest
from apps.training.public import Attempt, Task, build_handle, get_backend
from fermi.engines.base import RankExec
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Rendered

NOT_RUNNING_CODE = "RANK_NOT_RUNNING"


@dataclass(frozen=True, slots=True)
class RankTarget:
    """A rank that a channel can start commands next to."""

    project: str
    environment: DevEnvironment
    rank_exec: RankExec

    async def dial(self, request: EnvdRequest) -> tuple[socket.socket, dict[str, Any]]:
        """Start a command; the caller's own variables and directory precede the rank's."""
        return await envd_streams.dial_in_thread(lambda: envd_streams.dial_and_request(self.rank_exec.dial, request))


def find_rank_target(user: User, task_id: str, rank: int) -> RankTarget:
    """Return the target of a rank. Raises ApiError: 404 for users without access, 403 for viewers, 409 if the rank does
    not run. Call it in a thread."""
    rows = Task.objects.select_related("cluster")
    task = access.get_object(rows, user, task_id, Role.MEMBER)
    if rank >= task.world_size:
        raise ApiError(404, "RANK_UNKNOWN", rank=rank, high=task.world_size - 1)
    attempt = Attempt.objects.filter(task=task, number=task.attempt, outcome="", running_at__isnull=False).first()
    if attempt is None:
        raise ApiError(409, NOT_RUNNING_CODE, rank=rank, task=task.name)
    plan, handle = Rendered.from_json(attempt.plan), build_handle(task, attempt.number)
    try:
        found = get_backend(task.cluster).get_rank_exec(plan, handle, rank)
    except BackendError as error:
        if error.code != NOT_RUNNING_CODE and not error.permanent:
            raise
        params: dict[str, Any] = {**error.params, "rank": rank, "task": task.name}
        raise ApiError(409, error.code, **params) from error
    node = task.nodes.select_related("environment__cluster", "environment__hosted").get(node_rank=found.node_rank)
    if node.environment is None:
        raise ApiError(409, NOT_RUNNING_CODE, rank=rank, task=task.name)
    return RankTarget(task.project_id, node.environment, found)
