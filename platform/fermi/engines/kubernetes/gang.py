"""Kubernetes objects of one attempt, as the watch saw them last."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from fermi.engines.kubernetes import names

Object = dict[str, Any]
FINISHED_PHASES = ("Succeeded", "Failed")


class Gang:
    """Objects of one attempt. `gone`: pods that were deleted, as they were last, by node rank; their ends still matter.
    `events`: by the uid of what they are about, and reason."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.root: Object | None = None
        self.jobs: dict[str, Object] = {}
        self.jobset: Object | None = None
        self.workloads: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        self.gone: dict[int, Object] = {}  # by node rank
        self.events: Mapping[str, Mapping[str, Object]] = {}
        self._moved = time.monotonic()

    def copy(self, events: Mapping[str, Mapping[str, Object]]) -> Gang:
        """Return a copy with these events."""
        other = Gang(self.name)
        other.root, other.jobset, other.events = self.root, self.jobset, events
        other.jobs, other.workloads = dict(self.jobs), dict(self.workloads)
        other.pods, other.gone = dict(self.pods), dict(self.gone)
        other._moved = self._moved
        return other

    def put(self, kind: str, obj: Object) -> bool:
        """Store an object; return whether it is new or changed."""
        self._moved = time.monotonic()
        if kind in ("ConfigMap", "JobSet"):
            before = self.root if kind == "ConfigMap" else self.jobset
            setattr(self, "root" if kind == "ConfigMap" else "jobset", obj)
        else:
            table = self._table(kind)
            before = table.get(obj["metadata"]["name"])
            table[obj["metadata"]["name"]] = obj
        return before is None or before["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]

    def drop(self, kind: str, obj: Object) -> None:
        """Remove an object; a pod is kept in `gone`."""
        self._moved = time.monotonic()
        uid = obj["metadata"]["uid"]
        if kind == "ConfigMap":
            self.root = self.root if self.root and self.root["metadata"]["uid"] != uid else None
        elif kind == "JobSet":
            self.jobset = self.jobset if self.jobset and self.jobset["metadata"]["uid"] != uid else None
        else:
            table = self._table(kind)
            found = table.get(obj["metadata"]["name"])
            if found and found["metadata"]["uid"] == uid:
                del table[obj["metadata"]["name"]]
            if kind == "Pod":
                self.gone[names.get_node_rank(obj)] = obj

    def list_objects(self, kind: str) -> list[Object]:
        """Return the objects of a kind."""
        if kind in ("ConfigMap", "JobSet"):
            one = self.root if kind == "ConfigMap" else self.jobset
            return [one] if one else []
        return list(self._table(kind).values())

    def find(self, kind: str, name: str) -> Object | None:
        """Return an object by kind and name; None where there is none."""
        if kind in ("ConfigMap", "JobSet"):
            return next((obj for obj in self.list_objects(kind) if obj["metadata"]["name"] == name), None)
        return self._table(kind).get(name)

    def uids(self) -> list[str]:
        """Return the uids of its jobs, pods and workloads."""
        return [
            obj["metadata"]["uid"] for kind in ("Job", "Pod", "JobSet", "Workload") for obj in self.list_objects(kind)
        ]

    def is_empty(self) -> bool:
        """Return whether it has no objects."""
        return not (self.root or self.jobs or self.jobset or self.pods)

    def idle_seconds(self) -> float:
        """Return the seconds since an object changed."""
        return time.monotonic() - self._moved

    def _table(self, kind: str) -> dict[str, Object]:
        return {"Job": self.jobs, "Pod": self.pods, "Workload": self.workloads}.get(kind, {})

    # --- meaning of the objects ---

    @property
    def marks(self) -> dict[str, str]:
        """Annotations of the root."""
        return names.get_annotations(self.root) if self.root else {}

    @property
    def cancelled(self) -> bool:
        """Whether the attempt was asked to end."""
        return names.CANCELLED in self.marks

    @property
    def submitted(self) -> bool:
        """Whether all of its objects have been created."""
        return names.SUBMITTED in self.marks

    @property
    def places(self) -> tuple[int, ...]:
        """Ranks of its nodes that have pods of their own."""
        if (listed := self.marks.get(names.POD_NODE_RANKS)) is not None:
            return tuple(int(one) for one in listed.split(",") if one)
        return tuple(range(int(self.marks.get(names.NODES, 0))))

    @property
    def nodes(self) -> int:
        """Number of nodes that have pods of their own."""
        return len(self.places)

    def pod(self, node_rank: int) -> Object | None:
        """Return the node's pod, or as it was at its end."""
        return self.get_pods_by_node().get(node_rank) or self.gone.get(node_rank)

    def get_pods_by_node(self) -> dict[int, Object]:
        """Return pods by node rank; of several pods of a node, the newest."""
        ordered = sorted(self.pods.values(), key=lambda pod: pod["metadata"].get("creationTimestamp") or "")
        return {names.get_node_rank(pod): pod for pod in ordered}

    def list_unfinished(self) -> list[Object]:
        """Return jobs that run, or may start."""
        return [job for job in [*self.jobs.values(), *self.list_objects("JobSet")] if not has_finished(job)]

    def alive(self) -> list[Object]:
        """Return pods that have not ended."""
        return [pod for pod in self.pods.values() if get_phase(pod) not in FINISHED_PHASES]


def get_phase(pod: Object) -> str:
    """Return the phase of a pod."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def find_condition(obj: Object, kind: str) -> Object | None:
    """Return the condition of that kind, if it is true."""
    found = (obj.get("status") or {}).get("conditions") or ()
    return next((one for one in found if one["type"] == kind and one["status"] == "True"), None)


def has_finished(job: Object) -> bool:
    """Return whether a Job or JobSet has finished."""
    return any(find_condition(job, kind) for kind in ("Complete", "Failed", "Completed"))


def get_container_state(pod: Object) -> Object:
    """Return the state of our container: `waiting`, `running` or `terminated`, or nothing yet."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    found = next((one for one in statuses if one["name"] == names.CONTAINER), None)
    return (found or {}).get("state") or {}


def get_termination(pod: Object) -> Object | None:
    """Return how our container ended; None: it has not."""
    return get_container_state(pod).get("terminated")
