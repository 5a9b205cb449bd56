"""The objects of one attempt, as they were last seen."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from fermi.engines.kubernetes import names

Object = dict[str, Any]
FINISHED = ("Succeeded", "Failed")


class Gang:
    """`gone`: pods that are no more, as they last were; their ends are still of interest. `events`: by the uid of what
    they are about, and reason."""

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
        other = Gang(self.name)
        other.root, other.jobset, other.events = self.root, self.jobset, events
        other.jobs, other.workloads = dict(self.jobs), dict(self.workloads)
        other.pods, other.gone = dict(self.pods), dict(self.gone)
        other._moved = self._moved
        return other

    def put(self, kind: str, obj: Object) -> bool:
        """Whether it is news."""
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
                self.gone[names.node_rank(obj)] = obj

    def of(self, kind: str) -> list[Object]:
        if kind in ("ConfigMap", "JobSet"):
            one = self.root if kind == "ConfigMap" else self.jobset
            return [one] if one else []
        return list(self._table(kind).values())

    def find(self, kind: str, name: str) -> Object | None:
        if kind in ("ConfigMap", "JobSet"):
            return next((obj for obj in self.of(kind) if obj["metadata"]["name"] == name), None)
        return self._table(kind).get(name)

    def uids(self) -> list[str]:
        return [obj["metadata"]["uid"] for kind in ("Job", "Pod", "JobSet", "Workload") for obj in self.of(kind)]

    def is_empty(self) -> bool:
        return not (self.root or self.jobs or self.jobset or self.pods)

    def idle_seconds(self) -> float:
        return time.monotonic() - self._moved

    def _table(self, kind: str) -> dict[str, Object]:
        return {"Job": self.jobs, "Pod": self.pods, "Workload": self.workloads}.get(kind, {})

    # --- what it means ---

    @property
    def marks(self) -> dict[str, str]:
        return names.annotations(self.root) if self.root else {}

    @property
    def cancelled(self) -> bool:
        return names.CANCELLED in self.marks

    @property
    def submitted(self) -> bool:
        """Every object of it has been created."""
        return names.SUBMITTED in self.marks

    @property
    def places(self) -> tuple[int, ...]:
        """The ranks of its nodes that have pods of their own."""
        if (listed := self.marks.get(names.PLACES)) is not None:
            return tuple(int(one) for one in listed.split(",") if one)
        return tuple(range(int(self.marks.get(names.NODES, 0))))

    @property
    def nodes(self) -> int:
        """How many of them there are."""
        return len(self.places)

    def pod(self, node_rank: int) -> Object | None:
        """The node's pod, or as it was at its end."""
        return self.by_node().get(node_rank) or self.gone.get(node_rank)

    def by_node(self) -> dict[int, Object]:
        """Of several pods of a node, the newest."""
        ordered = sorted(self.pods.values(), key=lambda pod: pod["metadata"].get("creationTimestamp") or "")
        return {names.node_rank(pod): pod for pod in ordered}

    def unfinished(self) -> list[Object]:
        """Jobs that run, or may begin."""
        return [job for job in [*self.jobs.values(), *self.of("JobSet")] if not has_finished(job)]

    def alive(self) -> list[Object]:
        return [pod for pod in self.pods.values() if phase(pod) not in FINISHED]


def phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def condition(obj: Object, kind: str) -> Object | None:
    """The condition of that kind, if it is true."""
    found = (obj.get("status") or {}).get("conditions") or ()
    return next((one for one in found if one["type"] == kind and one["status"] == "True"), None)


def has_finished(job: Object) -> bool:
    """A Job's or a JobSet's."""
    return any(condition(job, kind) for kind in ("Complete", "Failed", "Completed"))


def container(pod: Object) -> Object:
    """The state of our container: `waiting`, `running` or `terminated`, or nothing yet."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    found = next((one for one in statuses if one["name"] == names.CONTAINER), None)
    return (found or {}).get("state") or {}


def terminated(pod: Object) -> Object | None:
    return container(pod).get("terminated")
