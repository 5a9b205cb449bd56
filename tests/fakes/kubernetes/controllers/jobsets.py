"""The JobSet controller: replicated jobs as Jobs, one headless Service, and how the set ends."""

import hashlib
import time
from collections.abc import Iterable
from typing import Any

from tests.fakes.kubernetes import clock, conditions
from tests.fakes.kubernetes.api import Api
from tests.fakes.kubernetes.errors import Refused, not_faked
from tests.fakes.kubernetes.resources import JOBS, JOBSETS, SERVICES, Resource
from tests.fakes.kubernetes.store import Change, Key, Object, copy

PREFIX = "jobset.sigs.k8s.io"
UNFAKED = ("coordinator", "managedBy", "volumeClaimPolicies")
RETRY_SECONDS = 0.2


class JobSets:
    def __init__(self, api: Api) -> None:
        self.api, self.store = api, api.store
        api.mutators.append(_refuse_unfaked)

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is JOBSETS:
            return [change.key]
        owners = change.new["metadata"].get("ownerReferences") or [] if change.resource is JOBS else []
        return [(change.key[0], ref["name"]) for ref in owners if ref["kind"] == "JobSet"]

    def reconcile(self, key: Key) -> float | None:
        with self.store.lock:
            jobset = self.store.get(JOBSETS, *key)
            if jobset is None or jobset["metadata"].get("deletionTimestamp"):
                return None
            if conditions.holds(jobset, "Completed", "Failed"):
                return self._expire(jobset)
            new = copy(jobset)
            again = self._sync(new)
            stored = self.api.change(JOBSETS, jobset, lambda obj: obj.update(status=new["status"]))
            return self._expire(stored) if stored and conditions.holds(stored, "Completed", "Failed") else again

    def _sync(self, jobset: Object) -> float | None:
        spec, status = jobset["spec"], jobset["status"]
        restarts = status.setdefault("restarts", 0)
        jobs = self._jobs(jobset)
        stale = [job for job in jobs if int(job["metadata"]["labels"][f"{PREFIX}/restart-attempt"]) < restarts]
        self._delete(stale)
        jobs = [job for job in jobs if job not in stale]
        status["replicatedJobsStatus"] = [_counts(one, jobs) for one in spec["replicatedJobs"]]
        failed = next((job for job in jobs if conditions.holds(job, "Failed")), None)
        if failed:
            self._fail(jobset, jobs, failed)
            return None
        if _succeeded(spec, jobs):
            why = ("AllJobsCompleted", "jobset completed successfully")
            conditions.set_condition(jobset, "Completed", True, *why)
            status["terminalState"] = "Completed"
            self._delete([job for job in jobs if not conditions.holds(job, "Complete", "Failed")])
            self.api.event(JOBSETS, jobset, "Normal", *why, source="jobset-controller")
            return None
        again = self._create(jobset, jobs)
        self._suspend(jobset, jobs)
        return again

    def _jobs(self, jobset: Object) -> list[Object]:
        uid = jobset["metadata"]["uid"]
        return [j for j in self.store.all(JOBS, jobset["metadata"]["namespace"]) if conditions.controller_of(j) == uid]

    def _create(self, jobset: Object, jobs: list[Object]) -> float | None:
        """The Service comes first: pods look for it as soon as they run."""
        namespace, network = jobset["metadata"]["namespace"], jobset["spec"]["network"]
        try:
            if network["enableDNSHostnames"] and not self.store.get(SERVICES, namespace, network["subdomain"]):
                self.api.create(SERVICES, namespace, _service(jobset))
            there = {job["metadata"]["name"] for job in jobs}
            for job in _wanted(jobset):
                if job["metadata"]["name"] not in there:
                    self.api.create(JOBS, namespace, job)
        except Refused as refused:
            if refused.reason != "AlreadyExists":  # one of the last attempt that has not gone yet
                self.api.event(JOBSETS, jobset, "Warning", "JobCreationFailed", refused.message, "jobset-controller")
            return RETRY_SECONDS
        return None

    def _suspend(self, jobset: Object, jobs: list[Object]) -> None:
        suspend = jobset["spec"]["suspend"]
        for job in jobs:
            if job["spec"]["suspend"] != suspend and not conditions.holds(job, "Complete", "Failed"):
                self.api.change(JOBS, job, lambda new: new["spec"].update(suspend=suspend))
        if suspend:
            conditions.set_condition(jobset, "Suspended", True, "SuspendedJobs", "jobset is suspended")
        elif conditions.get(jobset, "Suspended"):
            conditions.set_condition(jobset, "Suspended", False, "ResumeJobs", "jobset is resumed")

    def _fail(self, jobset: Object, jobs: list[Object], failed: Object) -> None:
        status = jobset["status"]
        policy = jobset["spec"].get("failurePolicy") or {}
        if status["restarts"] < policy.get("maxRestarts", 0):
            status["restarts"] += 1
            self._delete(jobs)
            return
        limit = policy.get("maxRestarts", 0)
        why = ("ReachedMaxRestarts", f"jobset failed due to reaching max number of restarts (first failed job: {{}}, "
               f"max restarts: {limit})") if limit else (
            "FailedJobs", "jobset failed due to one or more job failures (first failed job: {})")  # fmt: skip
        message = why[1].replace("{}", failed["metadata"]["name"])
        conditions.set_condition(jobset, "Failed", True, why[0], message)
        status["terminalState"] = "Failed"
        self._delete([job for job in jobs if not conditions.holds(job, "Complete", "Failed")])
        self.api.event(JOBSETS, jobset, "Warning", why[0], message, "jobset-controller")

    def _delete(self, jobs: list[Object]) -> None:
        for job in jobs:
            if not job["metadata"].get("deletionTimestamp"):
                options = {"propagationPolicy": "Foreground"}
                self.api.delete(JOBS, job["metadata"]["namespace"], job["metadata"]["name"], options)

    def _expire(self, jobset: Object) -> float | None:
        seconds = jobset["spec"].get("ttlSecondsAfterFinished")
        if seconds is None:
            return None
        ended = next(found for kind in ("Completed", "Failed") if (found := conditions.get(jobset, kind)))
        left = clock.parse(ended["lastTransitionTime"]).timestamp() + seconds - time.time()
        if left > 0:
            return left
        meta = jobset["metadata"]
        self.api.delete(JOBSETS, meta["namespace"], meta["name"], {"propagationPolicy": "Foreground"})
        return None


def _refuse_unfaked(resource: Resource, obj: Object) -> None:
    if resource is not JOBSETS:
        return
    found = [name for name in UNFAKED if name in obj["spec"]]
    found += ["failurePolicy.rules"] if (obj["spec"].get("failurePolicy") or {}).get("rules") else []
    found += ["dependsOn"] if any(one.get("dependsOn") for one in obj["spec"]["replicatedJobs"]) else []
    if (obj["spec"].get("startupPolicy") or {}).get("startupPolicyOrder", "AnyOrder") != "AnyOrder":
        found.append("startupPolicyOrder")
    if found:
        raise not_faked(f"{', '.join(found)} of a JobSet")


def _succeeded(spec: dict[str, Any], jobs: list[Object]) -> bool:
    targets = spec["successPolicy"].get("targetReplicatedJobs") or [one["name"] for one in spec["replicatedJobs"]]
    wanted = sum(one["replicas"] for one in spec["replicatedJobs"] if one["name"] in targets)
    done = sum(
        conditions.holds(job, "Complete") and job["metadata"]["labels"][f"{PREFIX}/replicatedjob-name"] in targets
        for job in jobs
    )
    return done >= (1 if spec["successPolicy"]["operator"] == "Any" else wanted)


def _counts(replicated: dict[str, Any], jobs: list[Object]) -> dict[str, Any]:
    name = f"{PREFIX}/replicatedjob-name"
    own = [job for job in jobs if job["metadata"]["labels"][name] == replicated["name"]]
    status = [job.get("status") or {} for job in own]
    return {
        "name": replicated["name"],
        "ready": sum(one.get("ready", 0) + one.get("succeeded", 0) >= 1 for one in status),
        "succeeded": sum(conditions.holds(job, "Complete") for job in own),
        "failed": sum(conditions.holds(job, "Failed") for job in own),
        "active": sum(one.get("active", 0) > 0 for one in status),
        "suspended": sum(job["spec"]["suspend"] for job in own),
    }


def _service(jobset: Object) -> Object:
    network = jobset["spec"]["network"]
    return {
        "metadata": {"name": network["subdomain"], "ownerReferences": [conditions.owner(JOBSETS, jobset)],
                     "labels": {f"{PREFIX}/jobset-name": jobset["metadata"]["name"]}},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": network["publishNotReadyAddresses"],
                 "selector": {f"{PREFIX}/jobset-name": jobset["metadata"]["name"]}},
    }  # fmt: skip


def _wanted(jobset: Object) -> Iterable[Object]:
    """The Jobs of the present attempt."""
    name, number = jobset["metadata"]["name"], 0
    for replicated in jobset["spec"]["replicatedJobs"]:
        for index in range(replicated["replicas"]):
            template = copy(replicated["template"])
            job = f"{name}-{replicated['name']}-{index}"
            marks = {
                f"{PREFIX}/jobset-name": name, f"{PREFIX}/jobset-uid": jobset["metadata"]["uid"],
                f"{PREFIX}/replicatedjob-name": replicated["name"], f"{PREFIX}/job-index": str(index),
                f"{PREFIX}/replicatedjob-replicas": str(replicated["replicas"]),
                f"{PREFIX}/job-global-index": str(number),
                f"{PREFIX}/restart-attempt": str(jobset["status"]["restarts"]),
                f"{PREFIX}/job-key": hashlib.sha1(f"{jobset['metadata']['namespace']}/{job}".encode()).hexdigest(),
            }  # fmt: skip
            number += 1
            spec = template["spec"] | {"suspend": jobset["spec"]["suspend"]}
            meta, pod = template.get("metadata") or {}, spec["template"].setdefault("metadata", {})
            for one in (meta, pod):
                one["labels"] = {**(one.get("labels") or {}), **marks}
                one["annotations"] = {**(one.get("annotations") or {}), **marks}
            if jobset["spec"]["network"]["enableDNSHostnames"]:
                spec["template"]["spec"]["subdomain"] = jobset["spec"]["network"]["subdomain"]
            meta |= {"name": job, "ownerReferences": [conditions.owner(JOBSETS, jobset)]}
            yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
