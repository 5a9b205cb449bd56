"""The Job controller: pods up to `completions`, retries up to `backoffLimit`, and why it ended."""

import secrets
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tests.fakes.kubernetes import clock, conditions
from tests.fakes.kubernetes.api import Api
from tests.fakes.kubernetes.errors import Refused, not_faked
from tests.fakes.kubernetes.resources import JOBS, PODS
from tests.fakes.kubernetes.store import Change, Key, Object, copy

FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
UNFAKED = (
    "podFailurePolicy", "successPolicy", "backoffLimitPerIndex", "maxFailedIndexes", "manualSelector", "managedBy",
)  # fmt: skip
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class Jobs:
    """Failed pods are replaced after `backoff_seconds` (a real controller waits 10 s and doubles)."""

    def __init__(self, api: Api) -> None:
        self.api, self.store = api, api.store
        self.backoff_seconds = 0.2
        self._pods: dict[str, set[Key]] = defaultdict(set)
        self._uids: dict[Key, set[str]] = defaultdict(set)
        self._retry_at: dict[str, float] = {}
        api.mutators.append(_refuse_unfaked)

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is JOBS:
            return [change.key]
        if change.resource is PODS and (uid := conditions.controller_of(change.new)):
            owner = change.new["metadata"]["ownerReferences"][0]
            if owner["kind"] != "Job":
                return []
            job = (change.new["metadata"]["namespace"], owner["name"])
            self._uids[job].add(uid)
            (self._pods[uid].discard if change.type == "DELETED" else self._pods[uid].add)(change.key)
            return [job]
        return []

    def reconcile(self, key: Key) -> float | None:
        with self.store.lock:
            job = self.store.get(JOBS, *key)
            self._release_orphans(key, job)
            if job is None:
                return None
            if job["metadata"].get("deletionTimestamp"):
                for pod in self._of(job["metadata"]["uid"]):
                    self._release(pod)
                return None
            return self._sync(job)

    def _of(self, uid: str) -> list[Object]:
        found = [self.store.get(PODS, *key) for key in self._pods.get(uid, ())]
        return sorted((pod for pod in found if pod), key=lambda pod: pod["metadata"]["name"])

    def _release(self, pod: Object) -> None:
        def edit(new: Object) -> None:
            new["metadata"]["finalizers"] = [f for f in new["metadata"].get("finalizers", []) if f != FINALIZER]

        self.api.change(PODS, pod, edit)

    def _release_orphans(self, key: Key, job: Object | None) -> None:
        """Pods of a job that is gone (or was replaced by another of its name) keep no tracking finalizer."""
        for uid in list(self._uids.get(key, ())):
            if job is None or uid != job["metadata"]["uid"]:
                for pod in self._of(uid):
                    self._release(pod)
                if not self._pods[uid]:
                    del self._pods[uid]
                    self._uids[key].discard(uid)

    def _sync(self, job: Object) -> float | None:
        finished = conditions.holds(job, "Complete", "Failed")
        pods = self._of(job["metadata"]["uid"])
        status = copy(job["status"])
        new = job | {"status": status}
        counted = self._count(new, pods) if not finished else pods
        if finished:
            for pod in pods:
                self._release(pod)
            return self._expire(job)
        active = [pod for pod in pods if _is_active(pod)]
        terminating = [p for p in pods if _phase(p) not in ("Succeeded", "Failed") and _deleting(p)]
        again = self._decide(new, active, terminating)
        now_active = [pod for pod in self._of(job["metadata"]["uid"]) if _is_active(pod)]
        status |= {
            "active": len(now_active), "ready": sum(conditions.holds(pod, "Ready") for pod in now_active),
            "terminating": len(terminating), "uncountedTerminatedPods": {},
        }  # fmt: skip
        for name in ("active", "terminating"):
            if not status[name]:
                del status[name]
        if conditions.holds(new, "Complete", "Failed"):
            status.pop("terminating", None)
        stored = self.api.change(JOBS, job, lambda obj: obj.update(status=status))
        for pod in counted:
            self._release(pod)
        return self._expire(stored) if stored and conditions.holds(stored, "Complete", "Failed") else again

    def _count(self, job: Object, pods: list[Object]) -> list[Object]:
        """Adds the pods that ended to the job's counters, and returns them: each is counted while it has the finalizer
        and loses it afterwards."""
        ended = []
        eager = job["spec"]["podReplacementPolicy"] == "TerminatingOrFailed"
        for pod in pods:
            if FINALIZER not in pod["metadata"].get("finalizers", []):
                continue
            if _phase(pod) == "Succeeded":
                _add(job, "succeeded", 1)
                ended.append(pod)
            elif _phase(pod) == "Failed" or (eager and _deleting(pod)):
                if not job["spec"]["suspend"]:
                    _add(job, "failed", 1)
                    self._retry_at[job["metadata"]["uid"]] = time.monotonic() + self.backoff_seconds
                ended.append(pod)
        if job["spec"]["completionMode"] == "Indexed" and ended:
            done = _indexes(job) | {_index(pod) for pod in ended if _phase(pod) == "Succeeded"}
            job["status"]["completedIndexes"] = ",".join(str(index) for index in sorted(done))
        return ended

    def _decide(self, job: Object, active: list[Object], terminating: list[Object]) -> float | None:
        spec, status = job["spec"], job["status"]
        if why := self._failure(job):
            conditions.set_condition(job, "FailureTarget", True, *why, probe=True)
            self._delete(active)
            if not active and not terminating:
                conditions.set_condition(job, "Failed", True, *why, probe=True)
                self.api.event(JOBS, job, "Warning", *why, source="job-controller")
            return None
        wanted = spec.get("completions")
        succeeded = status.get("succeeded", 0)
        if succeeded >= wanted if wanted is not None else (succeeded and not active and not terminating):
            why = ("CompletionsReached", "Reached expected number of succeeded pods")
            conditions.set_condition(job, "SuccessCriteriaMet", True, *why, probe=True)
            self._delete(active)
            if not active and not terminating:
                conditions.set_condition(job, "Complete", True, *why, probe=True)
                status["completionTime"] = clock.stamp()
                self.api.event(JOBS, job, "Normal", "Completed", "Job completed", "job-controller")
            return None
        if spec["suspend"]:
            self._delete(active)
            conditions.set_condition(job, "Suspended", True, "JobSuspended", "Job suspended", probe=True)
            status.pop("startTime", None)
            return None
        if "startTime" not in status:
            status["startTime"] = clock.stamp()
            if conditions.holds(job, "Suspended"):
                conditions.set_condition(job, "Suspended", False, "JobResumed", "Job resumed", probe=True)
        again = self._create(job, active, terminating)
        if seconds := spec.get("activeDeadlineSeconds"):
            left = clock.parse(status["startTime"]).timestamp() + seconds - time.time()
            again = min(again or left, left)
        return None if again is None else max(0.05, again)

    def _failure(self, job: Object) -> tuple[str, str] | None:
        if target := conditions.get(job, "FailureTarget"):
            return target["reason"], target["message"]
        spec, status = job["spec"], job["status"]
        if status.get("failed", 0) > spec["backoffLimit"]:
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        limit = spec.get("activeDeadlineSeconds")
        if limit and "startTime" in status and not spec["suspend"]:
            over = time.time() >= clock.parse(status["startTime"]).timestamp() + limit
            return ("DeadlineExceeded", "Job was active longer than specified deadline") if over else None
        return None

    def _create(self, job: Object, active: list[Object], terminating: list[Object]) -> float | None:
        spec = job["spec"]
        completions = spec.get("completions")
        missing = spec["parallelism"] - len(active)
        if completions is not None:
            missing = min(missing, completions - job["status"].get("succeeded", 0) - len(active))
        elif job["status"].get("succeeded"):
            missing = 0
        if spec["podReplacementPolicy"] == "Failed":
            missing -= len(terminating)
        if missing <= 0:
            self._delete(active[: max(0, -missing)])
            return None
        wait = self._retry_at.get(job["metadata"]["uid"], 0.0) - time.monotonic()
        if wait > 0:
            return wait
        taken = {_index(pod) for pod in (*active, *terminating)} | _indexes(job)
        free = (index for index in range(completions or 0) if index not in taken)
        for _ in range(missing):
            try:
                self.api.create(PODS, job["metadata"]["namespace"], _pod(job, next(free, None)))
            except Refused as refused:
                message = f"Error creating: {refused.message}"
                self.api.event(JOBS, job, "Warning", "FailedCreate", message, "job-controller")
                return self.backoff_seconds
        return None

    def _delete(self, pods: list[Object]) -> None:
        for pod in pods:
            options = {"preconditions": {"uid": pod["metadata"]["uid"]}}
            self.api.delete(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"], options)

    def _expire(self, job: Object) -> float | None:
        seconds = job["spec"].get("ttlSecondsAfterFinished")
        if seconds is None:
            return None
        ended = next(found for kind in ("Complete", "Failed") if (found := conditions.get(job, kind)))
        left = clock.parse(ended["lastTransitionTime"]).timestamp() + seconds - time.time()
        if left > 0:
            return left
        options = {"propagationPolicy": "Foreground"}
        self.api.delete(JOBS, job["metadata"]["namespace"], job["metadata"]["name"], options)
        return None


def _refuse_unfaked(resource: Any, obj: Object) -> None:
    if resource is JOBS and (found := [name for name in UNFAKED if name in obj["spec"]]):
        raise not_faked(f"{', '.join(found)} of a Job")


def _phase(pod: Object) -> str:
    return pod["status"].get("phase", "Pending")


def _is_active(pod: Object) -> bool:
    return _phase(pod) not in ("Succeeded", "Failed") and not _deleting(pod)


def _deleting(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _add(job: Object, name: str, count: int) -> None:
    job["status"][name] = job["status"].get(name, 0) + count


def _index(pod: Object) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, -1))


def _indexes(job: Object) -> set[int]:
    return {int(index) for index in job["status"].get("completedIndexes", "").split(",") if index}


def _pod(job: Object, index: int | None) -> Object:
    template, name = copy(job["spec"]["template"]), job["metadata"]["name"]
    meta, spec = template.get("metadata") or {}, template["spec"]
    prefix = f"{name}-"
    if job["spec"]["completionMode"] == "Indexed":
        prefix = f"{name}-{index}-"
        meta["annotations"] = {**(meta.get("annotations") or {}), INDEX: str(index)}
        meta["labels"] = {**meta["labels"], INDEX: str(index)}
        spec.setdefault("hostname", f"{name}-{index}")
        for container in spec["containers"]:
            source = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
            container["env"] = [*(container.get("env") or []), {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}]
    meta = {name: value for name, value in meta.items() if name in ("labels", "annotations", "finalizers")}
    meta |= {
        "generateName": prefix, "name": prefix[:58] + "".join(secrets.choice(ALPHABET) for _ in range(5)),
        "ownerReferences": [conditions.owner(JOBS, job)], "finalizers": [*meta.get("finalizers", []), FINALIZER],
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
