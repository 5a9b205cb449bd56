"""Workers on bare-metal hosts, and groups of workers."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.transport import Transport, build_telemetry_params
from fermi.client.types import (
    GroupCreateRequest,
    GroupItem,
    JoinTokenCreated,
    JoinTokenItem,
    MachineTelemetry,
    PatchedGroupChangeRequest,
    WorkerEnvironment,
    WorkerItem,
)


class Workers:
    """Workers: one per GPU of a host where `fermi worker` runs."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self,
        *,
        group: str | None = None,
        node: str | None = None,
        status: str | Sequence[str] | None = None,
        search: str | None = None,
        ordering: str | None = None,
    ) -> Listing[WorkerItem]:
        """Return workers. `group` is an id or a name, `none` for those in no group; several statuses mean any of
        them."""
        filters = {"group": group, "node": node, "status": status, "search": search, "ordering": ordering}
        return Listing(self._transport, "/workers", filters)

    def get(self, worker_id: str) -> WorkerItem:
        return self._transport.call("GET", f"/workers/{quote(worker_id)}")

    def environment(self, worker_id: str) -> WorkerEnvironment:
        """Return the environment variables that its process would get if its group were started now."""
        return self._transport.call("GET", f"/workers/{quote(worker_id)}/environment")

    def telemetry(
        self,
        worker_id: str,
        *,
        metrics: Sequence[str] = (),
        begins: str | None = None,
        ends: str | None = None,
        points: int | None = None,
    ) -> MachineTelemetry:
        """Return what its GPU, its rank and its host used, as series on one time grid, and which tasks ran there; of
        the last hour unless `begins` or `ends` (ISO 8601) say otherwise."""
        params = build_telemetry_params(metrics, begins, ends, points)
        return self._transport.call("GET", f"/workers/{quote(worker_id)}/telemetry", params=params)

    def delete(self, worker_id: str) -> None:
        self._transport.call("DELETE", f"/workers/{quote(worker_id)}")

    def join_tokens(self) -> Listing[JoinTokenItem]:
        return Listing(self._transport, "/workers/join-tokens", {})

    def create_join_token(self, name: str, *, project: str | None = None) -> JoinTokenCreated:
        """Create a token with which hosts register. The secret itself is in this answer and never shown again."""
        return self._transport.call("POST", "/workers/join-tokens", json={"name": name, "projectId": project})

    def revoke_join_token(self, token_id: str) -> None:
        self._transport.call("DELETE", f"/workers/join-tokens/{quote(token_id)}")


class Groups:
    """Groups of workers that run one script together."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, search: str | None = None) -> Listing[GroupItem]:
        return Listing(self._transport, "/worker-groups", {"search": search})

    def get(self, group_id: str) -> GroupItem:
        return self._transport.call("GET", _path(group_id))

    def create(self, request: GroupCreateRequest) -> GroupItem:
        return self._transport.call("POST", "/worker-groups", json=request)

    def update(self, group_id: str, changes: PatchedGroupChangeRequest) -> GroupItem:
        return self._transport.call("PATCH", _path(group_id), json=changes)

    def delete(self, group_id: str) -> None:
        self._transport.call("DELETE", _path(group_id))

    def move(self, worker_ids: Sequence[str], group_id: str | None) -> None:
        """Move all of these workers to the group, or none of them where one cannot be moved; `group_id` None takes them
        out of any group."""
        body: dict[str, Any] = {"workerIds": [*worker_ids], "groupId": group_id}
        self._transport.call("POST", "/worker-groups/move", json=body, repeatable=True)

    def start(self, group_id: str) -> GroupItem:
        """Start the group's script as a training task: `task` of the answer."""
        return self._transport.call("POST", _path(group_id, "/start"))

    def stop(self, group_id: str) -> GroupItem:
        """Request the stop of the group's task without waiting; repeating the request changes nothing."""
        return self._transport.call("POST", _path(group_id, "/stop"), repeatable=True)

    def restart(self, group_id: str) -> GroupItem:
        """Start a new task, which waits for the end of the running one."""
        return self._transport.call("POST", _path(group_id, "/restart"))


def _path(group_id: str, rest: str = "") -> str:
    return f"/worker-groups/{quote(group_id)}{rest}"
