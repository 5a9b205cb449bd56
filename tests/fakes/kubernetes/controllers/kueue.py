"""Kueue, as far as a user of a queue sees it: what names a queue is held back until there is quota for it, and taken
back by `preempt`: first the Workload says so, then the job is suspended, then its own controller deletes the pods
(kubernetes-sigs/kueue: pkg/workload/evict/evict.go, pkg/controller/jobframework/reconciler.go)."""

import hashlib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from tests.fakes.kubernetes import conditions
from tests.fakes.kubernetes.api import Api
from tests.fakes.kubernetes.errors import invalid, not_found
from tests.fakes.kubernetes.resources import CLASSES, JOBS, JOBSETS, KUEUE, LOCAL_QUEUES, WORKLOADS, Resource
from tests.fakes.kubernetes.store import Change, Key, Object, copy

QUEUE = "kueue.x-k8s.io/queue-name"
CLASS = "kueue.x-k8s.io/priority-class"
MAX_RUN = "kueue.x-k8s.io/max-exec-time-seconds"
LIMIT = 1000
"""Of an answer about who waits, where none is asked for."""
NO_QUOTA = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor default-flavor, "
    "8 more needed"
)
PREEMPTED = (
    "Preempted to accommodate a workload (UID: 641031a6-be4d-43f5-b51f-24a4d05dffe6, JobUID: UNKNOWN) due to "
    "prioritization in the ClusterQueue"
)


class Kueue:
    """`held`: (name pattern of the job or jobset, message): without quota until `FakeCluster.admit`. `installed` is
    looked at on every create: without it the queue's label means nothing. `quota`: how many pods fit into it; a
    workload gets all of its own or waits (https://kueue.sigs.k8s.io/docs/concepts/workload/), and a Job outside of a
    JobSet is a workload of its own (https://kueue.sigs.k8s.io/docs/tasks/run/jobs/)."""

    def __init__(self, api: Api, features: set[str]) -> None:
        self.api, self.store, self.features = api, api.store, features
        self.held: list[tuple[str, str]] = []
        self.quota: int | None = None
        api.mutators.append(self._hold_back)

    def _hold_back(self, resource: Resource, obj: Object) -> None:
        """The webhook: what names a queue begins suspended. It refuses a time that is none, and does not ask whether
        the class is there (pkg/controller/jobframework/validation.go, validateCreateForMaxExecTime)."""
        if "kueue" in self.features and _queue(resource, obj):
            longest = obj["metadata"]["labels"].get(MAX_RUN, "1")
            if not longest.isdecimal() or int(longest) <= 0:
                what = (f"metadata.labels[{MAX_RUN}]", f'Invalid value: "{longest}": should be greater than 0')
                raise invalid(resource, obj["metadata"]["name"], what)
            obj["spec"]["suspend"] = True

    def keys(self, change: Change) -> Iterable[tuple[Resource, Key]]:
        if "kueue" not in self.features:
            return []
        if change.resource in (JOBS, JOBSETS) and _queue(change.resource, change.new):
            return [(change.resource, change.key)]
        if change.resource is LOCAL_QUEUES:
            return [(r, (o["metadata"]["namespace"], o["metadata"]["name"]))
                    for r in (JOBS, JOBSETS) for o in self.store.all(r) if _queue(r, o)]  # fmt: skip
        return []

    def reconcile(self, key: tuple[Resource, Key]) -> None:
        with self.store.lock:
            resource, (namespace, name) = key
            obj = self.store.get(resource, namespace, name)
            if obj is None or obj["metadata"].get("deletionTimestamp"):
                return
            workload = self.store.get(WORKLOADS, namespace, _workload_name(resource, obj))
            if workload is None:
                priority = self._priority(resource, obj)
                if priority is None:
                    return
                workload = self.api.create(WORKLOADS, namespace, _workload(resource, obj, priority))
            if conditions.holds(obj, "Complete", "Completed", "Failed"):
                why = ("JobFinished", "Job finished successfully")
                self.api.change(WORKLOADS, workload, lambda new: conditions.set_condition(new, "Finished", True, *why))
                return
            if not workload["spec"]["active"]:
                return
            queue = _queue(resource, obj)
            if self.store.get(LOCAL_QUEUES, namespace, queue) is None:
                self._wait(workload, "Inadmissible", f"LocalQueue {queue} doesn't exist")
            elif message := next((text for pattern, text in self.held if fnmatchcase(name, pattern)), ""):
                self._wait(workload, "Pending", message)
            elif self.quota is not None and self._used(workload) + _pods(workload) > self.quota:
                self._wait(workload, "Pending", NO_QUOTA)
            else:
                self._admit(resource, obj, workload)

    def _priority(self, resource: Resource, obj: Object) -> dict[str, Any] | None:
        """None: there is no such class, so no workload either (pkg/controller/jobframework/reconciler.go,
        ExtractPriority)."""
        name = obj["metadata"]["labels"].get(CLASS)
        if not name:
            return {}
        if (found := self.store.get(CLASSES, "", name)) is None:
            said = f'WorkloadPriorityClass "{name}" not found'
            self.api.event(resource, obj, "Warning", "WorkloadPriorityClassNotFound", said, "kueue")
            return None
        about = {"group": KUEUE, "kind": "WorkloadPriorityClass", "name": name}
        return {"priority": found["value"], "priorityClassRef": about}

    def pending(self, namespace: str, queue: str, query: Mapping[str, str]) -> dict[str, Any]:
        """By priority, then age (pkg/cache/queue, pkg/visibility/storage/pending_workloads_lq.go). Positions from 0."""
        with self.store.lock:
            if self.store.get(LOCAL_QUEUES, namespace, queue) is None:
                raise not_found(LOCAL_QUEUES, queue)
            waiting = [one for one in self.store.all(WORKLOADS, namespace)
                       if one["spec"]["active"] and not conditions.holds(one, "QuotaReserved", "Finished")]  # fmt: skip
        first = sorted(waiting, key=_turn)
        mine = [one for one in first if one["spec"]["queueName"] == queue]
        offset, limit = int(query.get("offset", 0)), int(query.get("limit", LIMIT))
        items = [
            {"metadata": {name: one["metadata"][name] for name in ("name", "namespace", "ownerReferences")},
             "priority": one["spec"].get("priority", 0), "localQueueName": queue,
             "positionInClusterQueue": first.index(one), "positionInLocalQueue": place}
            for place, one in enumerate(mine)
        ]  # fmt: skip
        version = f"visibility.{KUEUE}/v1beta2"
        return {"kind": "PendingWorkloadsSummary", "apiVersion": version, "metadata": {},
                "items": items[offset : offset + limit]}  # fmt: skip

    def _used(self, but: Object) -> int:
        others = [one for one in self.store.all(WORKLOADS) if one["metadata"]["uid"] != but["metadata"]["uid"]]
        return sum(_pods(one) for one in others
                   if conditions.holds(one, "Admitted") and not conditions.holds(one, "Finished"))  # fmt: skip

    def _wait(self, workload: Object, reason: str, message: str) -> None:
        self.api.change(
            WORKLOADS, workload, lambda new: conditions.set_condition(new, "QuotaReserved", False, reason, message)
        )

    def preempt(self, resource: Resource, obj: Object) -> None:
        """To be held back as well, lest it is admitted again at once."""
        namespace = obj["metadata"]["namespace"]
        workload = self.store.get(WORKLOADS, namespace, _workload_name(resource, obj))
        assert workload, "it has been admitted"

        def edit(new: Object) -> None:
            conditions.set_condition(new, "Evicted", True, "Preempted", PREEMPTED)
            conditions.set_condition(new, "Preempted", True, "InClusterQueue", PREEMPTED)
            conditions.set_condition(new, "QuotaReserved", False, "Pending", PREEMPTED)
            conditions.set_condition(new, "Admitted", False, "NoReservation", "The workload has no reservation")
            new["status"].pop("admission", None)

        self.api.change(WORKLOADS, workload, edit)
        self.api.change(resource, obj, lambda new: new["spec"].update(suspend=True))

    def expire(self, resource: Resource, obj: Object) -> None:
        """Deactivated, so never admitted again (pkg/controller/core/workload_controller.go,
        reconcileMaxExecutionTime)."""
        workload = self.store.get(WORKLOADS, obj["metadata"]["namespace"], _workload_name(resource, obj))
        assert workload, "it has been admitted"
        assert "maximumExecutionTimeSeconds" in workload["spec"]
        why = "The workload is deactivated due to exceeding the maximum execution time"

        def edit(new: Object) -> None:
            new["spec"]["active"] = False
            conditions.set_condition(new, "Evicted", True, "DeactivatedDueToMaximumExecutionTimeExceeded", why)
            conditions.set_condition(new, "QuotaReserved", False, "Pending", why)
            conditions.set_condition(new, "Admitted", False, "NoReservation", "The workload has no reservation")
            new["status"].pop("admission", None)

        self.api.change(WORKLOADS, workload, edit)
        self.api.change(resource, obj, lambda new: new["spec"].update(suspend=True))

    def _admit(self, resource: Resource, obj: Object, workload: Object) -> None:
        def edit(new: Object) -> None:
            for kind in ("Evicted", "Preempted"):  # SetQuotaReservation in pkg/workload/workload.go
                if found := conditions.get(new, kind):
                    said = found["message"].removeprefix("Previously: ")
                    conditions.set_condition(new, kind, False, "QuotaReserved", f"Previously: {said}")
            conditions.set_condition(
                new, "QuotaReserved", True, "QuotaReserved", "Quota reserved in ClusterQueue default"
            )
            conditions.set_condition(new, "Admitted", True, "Admitted", "The workload is admitted")
            new["status"]["admission"] = {"clusterQueue": "default", "podSetAssignments": []}

        self.api.change(WORKLOADS, workload, edit)
        if obj["spec"]["suspend"]:
            self.api.change(resource, obj, lambda new: new["spec"].update(suspend=False))


def _turn(workload: Object) -> tuple[int, str]:
    return -workload["spec"].get("priority", 0), workload["metadata"]["creationTimestamp"]


def _pods(workload: Object) -> int:
    return sum(one["count"] for one in workload["spec"]["podSets"])


def _queue(resource: Resource, obj: Object) -> str:
    """Of what Kueue manages by itself: not of a Job that belongs to a JobSet."""
    if resource not in (JOBS, JOBSETS) or conditions.controller_of(obj):
        return ""
    return (obj["metadata"].get("labels") or {}).get(QUEUE, "")


def _workload_name(resource: Resource, obj: Object) -> str:
    name = f"{resource.kind.lower()}-{obj['metadata']['name']}"
    return f"{name[:57]}-{hashlib.sha1(obj['metadata']['uid'].encode()).hexdigest()[:5]}"


def _workload(resource: Resource, obj: Object, priority: dict[str, Any]) -> Object:
    def pod_set(name: str, job: dict[str, Any], count: int) -> dict[str, Any]:
        template = copy(job["template"])
        return {"name": name, "count": count * job.get("parallelism", 1), "template": template}

    spec = obj["spec"]
    if resource is JOBS:
        sets = [pod_set("main", spec, 1)]
    else:
        sets = [pod_set(one["name"], one["template"]["spec"], one["replicas"]) for one in spec["replicatedJobs"]]
    seconds = obj["metadata"]["labels"].get(MAX_RUN)
    longest = {"maximumExecutionTimeSeconds": int(seconds)} if seconds else {}
    return {
        "metadata": {"name": _workload_name(resource, obj), "ownerReferences": [conditions.owner(resource, obj)],
                     "labels": {"kueue.x-k8s.io/job-uid": obj["metadata"]["uid"]}},
        "spec": {"queueName": _queue(resource, obj), "podSets": sets, "active": True, **priority, **longest},
    }  # fmt: skip
