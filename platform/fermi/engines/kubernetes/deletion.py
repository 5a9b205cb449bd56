"""End of an attempt: request, fencing where a node is dead, confirmation, removal of its objects.

    cancel ─▶ mark the root ─▶ delete jobs (foreground) and living pods (with the requested grace)
                                   │  a pod stays Terminating although its time is over
                                   ▼
               its node's lease is stale, or the node is gone ─▶ taint the node, or delete the pod by force

A pod that ended by itself is left alone until its log has been read; `delete_attempt` and the orphan sweep remove it.
"""

import logging
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any, TypeGuard

from fermi.engines.kubernetes import names
from fermi.engines.kubernetes.client import MERGE_PATCH, KubernetesApiError, KubernetesClient
from fermi.engines.kubernetes.gang import FINISHED_PHASES, Gang, Object, get_phase, has_finished
from fermi.engines.kubernetes.render import KILL_MARGIN_SECONDS

log = logging.getLogger(__name__)

OVERDUE_SECONDS = 15.0
FENCE_RETRY_SECONDS = 5.0
DELETE_RETRY_SECONDS = 5.0
OUT_OF_SERVICE_TAINT = "node.kubernetes.io/out-of-service"


class AttemptDeleter:
    """Ends and removes attempts of one cluster."""

    def __init__(self, client: KubernetesClient, *, jobset: bool, taint: bool) -> None:
        self._client, self._jobset, self._taint = client, jobset, taint
        self._fenced: dict[str, float] = {}
        self._gone: set[str] = set()
        self._dropped: set[str] = set()
        self._sent: dict[str, tuple[float, float]] = {}  # uid -> (requested grace, when)

    def mark_cancelled(self, name: str, end: str) -> Object:
        """Return the root, marked as cancelled: from here on a `submit` of that name does nothing. Where there is none,
        one is made. `end`: for nodes inside of environments, until when they may take (`names.STOP_REQUEST`)."""
        marks = {names.CANCELLED: "true", names.STOP_REQUEST: end}
        try:
            return self._client.annotate("ConfigMap", name, **marks)
        except KubernetesApiError as error:
            if error.status != 404:
                raise
        made = self._client.create("ConfigMap", _build_tombstone(name, self._client.namespace, marks))
        return made or self._client.annotate("ConfigMap", name, **marks)

    def delete(self, gang: Gang, grace_seconds: float, find: Callable[[str], Object | None]) -> None:
        """Delete jobs and living pods; called again until nothing lives. Sends nothing for what is being deleted
        already: `find` returns a pod as it is at its turn, when Kubernetes may have started to end it with its job.
        Pods do not wait for their jobs to be gone: those make no others. A pod that is over keeps its job, and so its
        log."""
        over = {names.get_node_rank(pod) for pod in gang.pods.values()} - {
            names.get_node_rank(pod) for pod in gang.alive()
        }
        jobs = [job for job in gang.list_unfinished() if not (_is_being_deleted(job) or self._is_asked(job, 0))]
        jobs = [job for job in jobs if job["kind"] == "JobSet" or names.get_node_rank(job) not in over]
        grace = math.ceil(grace_seconds) + KILL_MARGIN_SECONDS

        def end(obj: Object) -> None:
            if obj["kind"] != "Pod":
                self._delete(obj, "Foreground")
            elif self._is_to_end(pod := find(obj["metadata"]["name"]), grace):
                self._delete(pod, "Background", grace)

        self._client.together(end, [*jobs, *gang.alive()])
        self.fence(gang)

    def delete_secret(self, name: str) -> None:
        """Delete the Secret of an attempt that is marked as cancelled: no container of it will need the values any
        more. Its root owns it, and stays until the sweep. Without the right to delete Secrets it goes with the root."""
        if name in self._dropped:
            return
        try:
            self._client.delete("Secret", name, propagation="Background")
        except KubernetesApiError as error:
            if not error.permanent:
                raise
            log.warning("the values of secrets of %s stay until its objects are swept: %s", name, error.message)
        self._dropped.add(name)

    def _is_to_end(self, pod: Object | None, grace: float) -> TypeGuard[Object]:
        if pod is None or get_phase(pod) in FINISHED_PHASES:
            return False
        return not (_is_being_deleted(pod, grace) or self._is_asked(pod, grace))

    def _is_asked(self, obj: Object, grace: float) -> bool:
        """Return whether a deletion with no longer grace was sent a moment ago: the watch is to show its result."""
        asked, at = self._sent.get(obj["metadata"]["uid"], (math.inf, 0.0))
        return asked <= grace and time.monotonic() - at < DELETE_RETRY_SECONDS

    def is_confirmed_gone(self, name: str) -> bool:
        """Return whether nothing of an attempt that is marked as cancelled runs or can start, according to the API
        server. Once true, always."""
        if name not in self._gone and self.is_lifeless(name):
            self._gone.add(name)
        return name in self._gone

    def is_lifeless(self, name: str) -> bool:
        """Return whether the API server has no living pod of it and no job that may start one."""
        query = {"labelSelector": names.build_selector(name)}
        kinds = ("Job", "Pod", *(("JobSet",) if self._jobset else ()))
        jobs, pods, *sets = (self._client.get(self._client.path(kind), **query)["items"] for kind in kinds)
        return all(map(has_finished, [*jobs, *chain(*sets)])) and all(get_phase(pod) in FINISHED_PHASES for pod in pods)

    def delete_attempt(self, name: str) -> None:
        """Remove what is left of an ended attempt. In the foreground: the root goes last."""
        for kind in (*(("JobSet",) if self._jobset else ()), "Job", "Service"):
            query = {"labelSelector": names.build_selector(name)}
            found = self._client.get(self._client.path(kind), **query)["items"]
            self._client.together(partial(self._forget, kind), found)
        self._client.delete("ConfigMap", name)
        self._gone.discard(name)
        self._dropped.discard(name)

    def _forget(self, kind: str, obj: Object) -> None:
        self._client.delete(kind, obj["metadata"]["name"], uid=obj["metadata"]["uid"])

    def fence(self, gang: Gang) -> None:
        """Fence pods whose time is over and whose kubelet does not confirm their end. Without the right to read nodes
        nothing is done: a process that may still run keeps its environment."""
        for pod in gang.alive():
            uid, machine = pod["metadata"]["uid"], (pod.get("spec") or {}).get("nodeName")
            if not machine or not _is_overdue(pod):
                continue
            if time.monotonic() - self._fenced.get(uid, -FENCE_RETRY_SECONDS) < FENCE_RETRY_SECONDS:
                continue
            self._fenced[uid] = time.monotonic()
            try:
                if self._is_dead(machine):
                    self._remove(pod, machine)
            except KubernetesApiError as error:
                log.warning("pod %s cannot be fenced: %s", pod["metadata"]["name"], error)

    def _is_dead(self, machine: str) -> bool:
        """Return whether the node does not exist any more, or its kubelet has not renewed its lease for longer than
        that lasts."""
        if self._client.find(f"/api/v1/nodes/{machine}") is None:
            return True
        lease = self._client.find(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{machine}")
        if lease is None:
            return False
        spec = lease["spec"]
        age = (datetime.now(UTC) - datetime.fromisoformat(spec["renewTime"])).total_seconds()
        return age > float(spec.get("leaseDurationSeconds") or 40)

    def _remove(self, pod: Object, machine: str) -> None:
        if self._taint and self._out_of_service(machine):
            return
        log.warning("pod %s is deleted by force: node %s is dead", pod["metadata"]["name"], machine)
        self._delete(pod, "Background", 0)

    def _out_of_service(self, machine: str) -> bool:
        """Taint a node, whereupon Kubernetes removes its pods and detaches their volumes; return False where that is
        not allowed."""
        path = f"/api/v1/nodes/{machine}"
        try:
            node = self._client.get(path)
            taints = (node.get("spec") or {}).get("taints") or []
            if any(taint["key"] == OUT_OF_SERVICE_TAINT for taint in taints):
                return True
            taints = [*taints, {"key": OUT_OF_SERVICE_TAINT, "value": "nodeshutdown", "effect": "NoExecute"}]
            patch = {
                "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
                "spec": {"taints": taints},
            }
            self._client.request("PATCH", path, body=patch, content_type=MERGE_PATCH)
        except KubernetesApiError as error:
            log.warning("node %s cannot be tainted: %s", machine, error)
            return error.status == 409
        return True

    def _delete(self, obj: Object, propagation: str, grace: int | None = None) -> None:
        meta = obj["metadata"]
        kind = obj.get("kind") or "Pod"
        self._client.delete(kind, meta["name"], uid=meta["uid"], propagation=propagation, grace=grace)
        if len(self._sent) > 20_000:
            self._sent.clear()
        self._sent[meta["uid"]] = (grace or 0, time.monotonic())


def _build_tombstone(name: str, namespace: str, marks: dict[str, str]) -> dict[str, Any]:
    labels = {names.MANAGED_BY: "fermi", **names.build_attempt_labels(name)}
    meta = {"name": name, "namespace": namespace, "labels": labels, "annotations": marks}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


def _is_being_deleted(obj: Object, grace: float | None = None) -> bool:
    meta = obj["metadata"]
    if not meta.get("deletionTimestamp"):
        return False
    return grace is None or float(meta.get("deletionGracePeriodSeconds") or 0) <= grace


def _is_overdue(pod: Object) -> bool:
    """Return whether a pod's grace (`deletionTimestamp` is its end) is over for `OVERDUE_SECONDS`."""
    end = pod["metadata"].get("deletionTimestamp")
    return bool(end) and (datetime.now(UTC) - datetime.fromisoformat(end)).total_seconds() > OVERDUE_SECONDS
