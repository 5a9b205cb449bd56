"""Find why an attempt waits or failed, from what Kubernetes says about its objects. Pure.

Each cause names the environment (`node`), the `pod` (or job) and the `evidence`: Kubernetes' own words, or the last
lines of the rank that failed. Texts and advice belong to the code (`texts.toml`), as does what `CAUSES` declares.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from fermi.engines import runner_reports
from fermi.engines.failure_cause import RUNNER_CAUSES, build_rank_cause, build_runner_cause, is_rank_killed
from fermi.engines.kubernetes import names
from fermi.engines.kubernetes.gang import (
    Gang,
    Object,
    find_condition,
    get_container_state,
    get_phase,
    get_termination,
    has_finished,
)
from fermi.jobs.causes import ALWAYS_FREE, declare_causes
from fermi.jobs.spec import Cause
from fermi.runner import first_failure
from fermi.runner.exit_codes import NO_RANK_STARTED, to_process_code

CAUSES = declare_causes(
    # what keeps a pod from starting; when the time to start is over, the end of an attempt
    Cause("GPU_INSUFFICIENT", retry=True),
    Cause("RESOURCES_INSUFFICIENT", retry=True),
    Cause("NODE_TAINTED", retry=True),
    Cause("UNSCHEDULABLE", retry=True),
    Cause("QUOTA_EXCEEDED", retry=True),
    Cause("PRIORITY_CLASS_UNKNOWN"),
    Cause("POD_NOT_CREATED", retry=True),
    Cause("POD_AWAITED", retry=True),
    Cause("VOLUME_UNAVAILABLE"),
    Cause("DEVICES_UNAVAILABLE", retry=True),
    Cause("POD_NOT_SET_UP", retry=True),
    Cause("IMAGE_UNAVAILABLE"),
    Cause("NODE_MISSING"),
    Cause("NODE_LABELS_MISSING", retry=True),
    Cause("CONTAINER_INVALID"),
    Cause("ADMISSION_DENIED"),
    Cause("WEBHOOK_UNAVAILABLE", retry=True),
    Cause("INSIDE_NOT_RUNNING", retry=True),
    # interference from outside
    Cause("EVICTED", retry=True, asked=True, lost=True),
    Cause("POD_DELETED", retry=True, asked=True, lost=True),
    Cause("POD_PREEMPTED", retry=True, asked=True, free=ALWAYS_FREE),
    Cause("JOB_SUSPENDED", retry=True, asked=True, halts=True),
    Cause("KEEPER_ENDED", retry=True),
    # while it runs
    Cause("LOG_UNAVAILABLE"),
    Cause("NODE_SILENT"),
)
NO_PRIORITY_CLASS = "WorkloadPriorityClassNotFound"
"""Event of a job for which Kueue makes no Workload: pkg/controller/jobframework/reconciler.go, ExtractPriority."""
MAX_EVIDENCE_CHARS = 1000  # characters
KILLED_EXIT_CODES = (143, 137)  # SIGTERM, SIGKILL
CANNOT_RUN_EXIT_CODE = 128  # the container runtime's, with reason StartError
_FATAL_PULL = re.compile(
    r"not found|manifest unknown|does not exist|unauthorized|authentication required|denied|no match for platform"
    r"|invalid reference|couldn't parse image|InvalidImageName|ErrImageNeverPull",
    re.IGNORECASE,
)
_PULLING = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
_CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError")
BLOCKING_EVENTS = {
    **dict.fromkeys(("FailedMount", "FailedAttachVolume", "FailedMapVolume"), "VOLUME_UNAVAILABLE"),
    "FailedPrepareDynamicResources": "DEVICES_UNAVAILABLE",
    **dict.fromkeys(("FailedCreatePodSandBox", "FailedCreatePodContainer", "NetworkNotReady"), "POD_NOT_SET_UP"),
}
"""Events that say why a machine cannot create a pod's containers; it keeps trying, and the containers' state says no
more than ContainerCreating (kubernetes/kubernetes, pkg/kubelet/events/event.go; pkg/kubelet/kubelet.go, SyncPod;
pkg/kubelet/kuberuntime/kuberuntime_manager.go, SyncPod)."""
_INFRASTRUCTURE = (
    "OUT_OF_MEMORY", "EVICTED", "POD_PREEMPTED", "NODE_LOST", "POD_DELETED", "CONTAINER_INVALID", "RUN_TIMEOUT",
)  # fmt: skip
HOSTNAME_LABEL = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_SHORT = re.compile(r"Insufficient ([\w./-]+)")


def find_failure(gang: Gang, successful: bool) -> Cause | None:
    """Return what failed first, or what waiting cannot resolve; None: nothing. `successful`: no part of the attempt has
    to run any more."""
    if successful:
        return None
    if late := _find_timeout(gang):
        return late
    if taken := _find_interruption(gang):
        return taken
    if failed := _list_failures(gang):
        return min(failed, key=_build_sort_key(min(ended for ended, _ in failed)))[1]
    if gang.cancelled:
        return None
    for cause, permanent in _iterate_obstacles(gang):
        if permanent:
            return cause
    for job in [*gang.jobs.values(), *gang.list_objects("JobSet")]:
        if found := find_condition(job, "Failed"):
            return _build_job_cause("POD_DELETED", job, found)
    return None


def find_waiting_cause(gang: Gang) -> Cause | None:
    """Return why the attempt has not started: what Kueue says first, then what blocks a pod."""
    for workload in gang.workloads.values():
        if not find_condition(workload, "Admitted"):
            return _build_queue_cause(workload)
    job = _find_suspended(gang)
    if job and (event := gang.events.get(job["metadata"]["uid"], {}).get(NO_PRIORITY_CLASS)):
        return _build_job_cause("PRIORITY_CLASS_UNKNOWN", job, event)
    if job and not _get_queue(job):
        return _build_job_cause("JOB_SUSPENDED", job, {"message": "spec.suspend is true"})
    return next((cause for cause, _ in _iterate_obstacles(gang)), None)


def find_unread_log(gang: Gang, reports: Mapping[int, Mapping[str, Any]]) -> Cause | None:
    """Return the cause of a running pod whose log its node does not serve: nothing is known of its ranks meanwhile.
    None: there is none."""
    for node_rank, pod in sorted(gang.get_pods_by_node().items()):
        if why := reports.get(node_rank, {}).get("silence"):
            return build_pod_cause("LOG_UNAVAILABLE", pod, why)
    return None


def _build_sort_key(first_end: float) -> Any:
    """Return a sort key of failures by how much they explain: what the machine did first; then as
    `fermi.runner.first_failure` does."""

    def key(failed: tuple[float, Cause]) -> tuple[int, float]:
        ended, cause = failed
        if not first_failure.may_have_caused(first_end, ended):
            return 2, ended
        if cause.code in _INFRASTRUCTURE or cause.code in RUNNER_CAUSES:
            return 0, ended
        return (1 if is_rank_killed(cause) else 2), ended

    return key


def _find_timeout(gang: Gang) -> Cause | None:
    """Return the cause of a job that reached its deadline, which comes before what that did to the pods."""
    for job in gang.jobs.values():
        for kind in ("FailureTarget", "Failed"):
            found = find_condition(job, kind)
            if found and found.get("reason") == "DeadlineExceeded":
                return _build_job_cause("RUN_TIMEOUT", job, found)
    return None


# --- preempted or suspended as a whole ---


def _find_interruption(gang: Gang) -> Cause | None:
    """Return why an attempt that had started is not to run now: preempted, or suspended. It would run a second time
    under the same name once it is admitted again, so it is over, and what Kueue says of the time before counts then
    too."""
    if gang.cancelled:
        return None
    for workload in gang.workloads.values():
        conditions = (workload.get("status") or {}).get("conditions") or ()
        said = {one["type"]: one for one in conditions if one["type"] in ("Evicted", "Preempted")}
        if said:
            owners = {owner["uid"] for owner in workload["metadata"].get("ownerReferences") or ()}
            job = next((job for job in _list_leaders(gang) if job["metadata"]["uid"] in owners), workload)
            why = said.get("Preempted") or said["Evicted"]
            if "MaximumExecutionTimeExceeded" in str(why.get("reason")):
                return _build_job_cause("RUN_TIMEOUT", job, why)
            return _build_job_cause("POD_PREEMPTED" if "Preempted" in said else "EVICTED", job, why)
    if (suspended := _find_suspended(gang)) and (gang.pods or gang.gone):
        return _build_job_cause("JOB_SUSPENDED", suspended, {"message": "spec.suspend became true"})
    return None


def _list_leaders(gang: Gang) -> list[Object]:
    """Return the objects that users and queues act upon: a JobSet owns its Jobs."""
    return gang.list_objects("JobSet") or list(gang.jobs.values())


def _find_suspended(gang: Gang) -> Object | None:
    found = (job for job in _list_leaders(gang) if job["spec"].get("suspend") and not has_finished(job))
    return None if gang.cancelled else next(found, None)


def _get_queue(job: Object) -> str | None:
    return (job["metadata"].get("labels") or {}).get(names.QUEUE)


# --- pods that ended ---


def _list_failures(gang: Gang) -> list[tuple[float, Cause]]:
    """Return (unix seconds, cause) of each pod that failed. A JobSet deletes the others once one has failed. A pod that
    was killed after its ranks had ended is a failure only where there is no other one: it explains none."""
    found: list[tuple[float, Cause]] = []
    late: list[tuple[float, Cause]] = []
    for node_rank in gang.places:
        pod = gang.pod(node_rank)
        if pod is None:
            continue
        if get_phase(pod) == "Failed":
            failures = late if _was_killed_after_its_ranks(get_termination(pod) or {}) else found
            failures.append((_get_end_time(pod), _explain_end(gang, pod)))
        elif lost := _find_removal(gang, pod):
            found.append((_get_end_time(pod), lost))
    first = min((ended for ended, cause in found if cause.code != "POD_DELETED"), default=math.inf)
    counted = [one for one in found if one[1].code != "POD_DELETED" or not gang.jobset or one[0] < first]
    return counted or late


def _explain_end(gang: Gang, pod: Object) -> Cause:
    status = pod["status"]
    reason = str(status.get("reason") or "")
    if reason == "DeadlineExceeded":
        return build_pod_cause("RUN_TIMEOUT", pod, status.get("message") or reason)
    if reason in ("NodeLost", "NodeShutdown", "Shutdown", "Terminated"):
        return build_pod_cause("NODE_LOST", pod, status.get("message") or reason)
    ended = get_termination(pod)
    if ended and ended.get("reason") == "OOMKilled":
        return build_pod_cause("OUT_OF_MEMORY", pod, _get_tail(ended) or "OOMKilled")
    if reason in ("Evicted", "Preempting"):
        code = "EVICTED" if reason == "Evicted" else "POD_PREEMPTED"
        return build_pod_cause(code, pod, status.get("message") or reason)
    if disruption := find_condition(pod, "DisruptionTarget"):
        return _build_disruption_cause(pod, disruption)
    if reason.startswith("OutOf") or reason == "UnexpectedAdmissionError":
        return build_pod_cause("RESOURCES_INSUFFICIENT", pod, status.get("message") or reason)
    if ended is None:
        return build_pod_cause("POD_DELETED", pod, status.get("message") or reason or "no container status")
    if not gang.cancelled and _was_stopped_from_outside(pod, ended):
        return _explain_deletion(gang, pod)
    return _explain_exit(gang, pod, ended)


def _was_stopped_from_outside(pod: Object, ended: Mapping[str, Any]) -> bool:
    """Return whether a pod's runner was asked from outside to end before any of its ranks had failed. A runner that
    could not report it was killed at the end of the grace, or never started."""
    said = read_report(ended)
    if not said:
        return bool(pod["metadata"].get("deletionTimestamp")) and ended.get("exitCode") in KILLED_EXIT_CODES
    if _was_killed_after_its_ranks(ended):
        return True
    culprit = first_failure.find_first_failure(list_rank_ends(ended))
    return "terminated" in said and (culprit is None or culprit.stop_requested)


def _was_killed_after_its_ranks(ended: Mapping[str, Any]) -> bool:
    """Return whether a runner was killed between its report and its end, with no rank that failed: a JobSet deletes the
    pods of the others when one fails, and some of them are about to end by themselves."""
    said, ends = read_report(ended), list_rank_ends(ended)
    finished = bool(ends) and len(ends) == len(said["ranks"]) and not any(end.exit_code for end in ends)
    return finished and not {"cause", "terminated"} & said.keys() and ended.get("exitCode") in KILLED_EXIT_CODES


def _explain_exit(gang: Gang, pod: Object, ended: Mapping[str, Any]) -> Cause:
    code, said = int(ended.get("exitCode", 0)), read_report(ended)
    text = str(ended.get("message") or "")
    if ended.get("reason") in ("StartError", "ContainerCannotRun") or (code == CANNOT_RUN_EXIT_CODE and not said):
        return build_pod_cause("CONTAINER_INVALID", pod, text or str(ended.get("reason")))
    if code == NO_RANK_STARTED and said.get("cause") in ("MASTER_UNREACHABLE", "NODES_MISSING"):
        return build_pod_cause(said["cause"], pod, str(said.get("detail")))
    at = {**describe_pod(pod), "evidence": str(said.get("detail") or _get_tail(ended))}
    if known := build_runner_cause({**(said.get("about") or {}), "code": said.get("cause")}, at):
        return known
    rank = said.get("rank", names.get_ranks(pod).start)
    own = next((end for end in list_rank_ends(ended) if end.rank == rank), None) or first_failure.RankEnd(
        rank, to_process_code(code), 0.0
    )
    others = (get_termination(gang.pod(node_rank) or {"status": {}}) for node_rank in gang.places)
    gone = first_failure.list_earlier_exits(own, [end for one in others for end in list_rank_ends(one or {})])
    return build_rank_cause(own, {"rank": rank, **describe_pod(pod), "evidence": _get_tail(ended)}, gone)


def _find_removal(gang: Gang, pod: Object) -> Cause | None:
    """Return the cause of a pod that was alive when another user or controller deleted it; None: it was not."""
    if gang.cancelled or get_phase(pod) == "Succeeded" or not pod["metadata"].get("deletionTimestamp"):
        return None
    if disruption := find_condition(pod, "DisruptionTarget"):
        return _build_disruption_cause(pod, disruption)
    return None if gang.jobset else _explain_deletion(gang, pod)


def _explain_deletion(gang: Gang, pod: Object) -> Cause:
    job = next((job for job in gang.jobs.values() if names.get_node_rank(job) == names.get_node_rank(pod)), None)
    if job is None or job["metadata"].get("deletionTimestamp"):
        return build_pod_cause("POD_DELETED", pod, "its job was deleted")
    if pod["metadata"].get("deletionTimestamp"):
        return build_pod_cause("POD_DELETED", pod, "the pod was deleted")
    return build_pod_cause("POD_DELETED", pod, "its runner was asked to end (SIGTERM)")


def _build_disruption_cause(pod: Object, disruption: Mapping[str, Any]) -> Cause:
    return build_pod_cause(
        get_disruption_code(disruption), pod, f"{disruption.get('reason')}: {disruption.get('message')}"
    )


def get_disruption_code(disruption: Mapping[str, Any]) -> str:
    """Return the code of a pod's condition DisruptionTarget."""
    if disruption.get("reason") in ("DeletionByTaintManager", "DeletionByPodGC"):
        return "NODE_LOST"
    return "POD_PREEMPTED" if disruption.get("reason") == "PreemptionByScheduler" else "EVICTED"


def find_vanished_node(gang: Gang) -> Cause | None:
    """Return the cause of a node of a submitted attempt that has neither a pod nor a job that may still start, as far
    as the watch knows: the API server has to be asked. None: there is no such node."""
    if gang.cancelled or not gang.submitted or gang.list_unfinished():
        return None
    for node_rank in gang.places:
        if gang.pod(node_rank) is None:
            job = names.build_node_name(gang.name, node_rank)
            params = {"node": job, "nodeRank": node_rank, "pod": job, "evidence": "neither job nor pod is there"}
            return Cause("POD_DELETED", params)
    return None


# --- pods that have not started ---


def _iterate_obstacles(gang: Gang) -> Iterator[tuple[Cause, bool]]:
    """Yield (cause, whether waiting cannot help) by node rank; callers look for permanent ones of all nodes."""
    pods = gang.get_pods_by_node()
    for _, job in sorted(gang.jobs.items()):
        event = gang.events.get(job["metadata"]["uid"], {}).get("FailedCreate")
        if event and names.get_node_rank(job) not in pods and not has_finished(job):
            yield explain_not_created(job, event)
    for _, pod in sorted(pods.items()):
        if get_phase(pod) == "Pending" and (found := explain_pending(pod, gang.events.get(pod["metadata"]["uid"], {}))):
            yield found


def explain_not_created(job: Object, event: Object) -> tuple[Cause, bool]:
    """Return why a job's pod is not created, and whether waiting cannot help."""
    said = str(event.get("message") or "")
    if "exceeded quota" in said:
        return _build_job_cause("QUOTA_EXCEEDED", job, event), False
    if "failed calling webhook" in said or ("forbidden" not in said and "denied" not in said):
        return _build_job_cause("POD_NOT_CREATED", job, event), False
    return _build_job_cause("ADMISSION_DENIED", job, event), True


def explain_pending(pod: Object, events: Mapping[str, Object]) -> tuple[Cause, bool] | None:
    """Return why a pod does not start, and whether waiting cannot help; None: not known. `events`: about it, by
    reason."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    unscheduled = next((c for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), None)
    if unscheduled:
        return _explain_unschedulable(pod, str(unscheduled.get("message") or unscheduled.get("reason") or ""))
    waits = get_container_state(pod).get("waiting") or {}
    reason, message = str(waits.get("reason") or ""), str(waits.get("message") or "")
    if reason in _PULLING:
        message = " ".join(filter(None, (message, str((events.get("Failed") or {}).get("message") or ""))))
        return build_pod_cause("IMAGE_UNAVAILABLE", pod, f"{reason}: {message}"), bool(
            _FATAL_PULL.search(f"{reason} {message}")
        )
    if reason in _CONFIG:
        return build_pod_cause("CONTAINER_INVALID", pod, f"{reason}: {message}"), True
    found = [event for kind in BLOCKING_EVENTS if (event := events.get(kind))]
    if not found:
        return None
    event = max(found, key=lambda one: str(one.get("lastTimestamp") or ""))
    return build_pod_cause(BLOCKING_EVENTS[event["reason"]], pod, f"{event['reason']}: {event.get('message')}"), False


def _explain_unschedulable(pod: Object, message: str) -> tuple[Cause, bool]:
    """Return the cause of a scheduler's message, and whether waiting cannot help. The scheduler counts the nodes by
    what excludes each. Of a pod that is pinned to one machine the other nodes all say `affinity`, and any other reason
    is about that machine; of one that requires labels alone, a node that has them may be added
    (https://github.com/kubernetes/autoscaler, cluster-autoscaler/FAQ.md)."""
    main = message.partition(" preemption:")[0]
    short = _SHORT.findall(main)
    if any("/" in name for name in short):  # an extended resource, as GPUs are
        return build_pod_cause("GPU_INSUFFICIENT", pod, main), False
    if short or "resourceclaim" in main or "Too many pods" in main:
        return build_pod_cause("RESOURCES_INSUFFICIENT", pod, main), False
    if "persistentvolumeclaim" in main and "not found" in main:
        return build_pod_cause("VOLUME_UNAVAILABLE", pod, main), True
    if "PersistentVolumeClaim" in main or "volume" in main:
        return build_pod_cause("VOLUME_UNAVAILABLE", pod, main), False
    if "taint" in main or "unschedulable" in main:
        return build_pod_cause("NODE_TAINTED", pod, main), False
    if "affinity" in main.lower():  # or "didn't satisfy plugin(s) [NodeAffinity]"
        if asked := _format_required_labels(pod):
            return build_pod_cause("NODE_LABELS_MISSING", pod, main, labels=asked), False
        return build_pod_cause("NODE_MISSING", pod, main), True
    return build_pod_cause("UNSCHEDULABLE", pod, main), False


def _format_required_labels(pod: Object) -> str:
    """Return the labels that a node must have, as text; empty for a pod that is pinned to a machine by its name."""
    spec = pod.get("spec") or {}
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    terms = required.get("nodeSelectorTerms") or ()
    wanted = [one for term in terms for one in term.get("matchExpressions") or ()]
    wanted += [
        {"key": key, "operator": "In", "values": [value]} for key, value in (spec.get("nodeSelector") or {}).items()
    ]
    if any(term.get("matchFields") for term in terms) or any(one["key"] == HOSTNAME_LABEL for one in wanted):
        return ""
    return ", ".join(f"{one['key']} {one['operator']} {' | '.join(one.get('values') or ())}".strip() for one in wanted)


def _build_queue_cause(workload: Object) -> Cause:
    found = (workload.get("status") or {}).get("conditions") or ()
    said: Object = next((c for c in found if c["type"] in ("QuotaReserved", "Admitted") and c["status"] == "False"), {})
    params = {
        "queue": workload["spec"].get("queueName", ""),
        "evidence": str(said.get("message") or "")[:MAX_EVIDENCE_CHARS],
    }
    return Cause("QUEUE_WAITING", params)


# --- texts and parameters ---


def read_report(termination: Mapping[str, Any]) -> dict[str, Any]:
    """Return the runner's termination message; empty when it could not write one."""
    return runner_reports.parse_termination_message(str(termination.get("message") or ""))


def list_rank_ends(termination: Mapping[str, Any]) -> list[first_failure.RankEnd]:
    """Return the ends of the ranks that the runner saw end."""
    said = read_report(termination)
    asked = said.get("asked", ())
    found = (row for row in said.get("ranks", ()) if row[1] is not None)
    return [first_failure.RankEnd(rank, code, at or 0.0, rank in asked) for rank, code, at in found]


def read_rank_extras(termination: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """Return the further fields of how a rank ended, from the runner's termination message; empty: it names another
    rank."""
    said = read_report(termination)
    return runner_reports.parse_extras(said) if said.get("rank") == rank else {}


def _get_end_time(pod: Object) -> float:
    """Return when a pod's container ended, in unix seconds; the runner's own to the fraction, else Kubernetes' whole
    ones; 0: not known."""
    from datetime import datetime

    ended = get_termination(pod)
    if ended is None:
        return 0.0
    failed = first_failure.find_first_failure(list_rank_ends(ended))
    if failed and not failed.stop_requested:
        return failed.ended_at
    if asked := read_report(ended).get("terminated"):
        return float(asked)
    if failed:
        return failed.ended_at
    stamp = ended.get("finishedAt")
    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0


def _get_tail(ended: Mapping[str, Any]) -> str:
    said = read_report(ended)
    return str(said.get("tail", "") if said else ended.get("message") or "").strip()[-MAX_EVIDENCE_CHARS:]


def describe_pod(pod: Object) -> dict[str, Any]:
    """Return the parameters that name a pod: its environment, node rank, name and machine."""
    marks = names.get_annotations(pod)
    name = pod["metadata"]["name"]
    found = {"node": marks.get(names.ENVIRONMENT, name), "nodeRank": names.get_node_rank(pod), "pod": name}
    if machine := (pod.get("spec") or {}).get("nodeName"):
        found["machine"] = machine
    return found


def build_pod_cause(code: str, pod: Object, evidence: str, **more: Any) -> Cause:
    """Return a cause about a pod."""
    return Cause(code, {**describe_pod(pod), "evidence": evidence.strip()[:MAX_EVIDENCE_CHARS], **more})


def _build_job_cause(code: str, job: Object, condition: Mapping[str, Any]) -> Cause:
    marks = names.get_annotations(job["spec"].get("template") or {"metadata": {}})
    name = job["metadata"]["name"]
    params = {"node": marks.get(names.ENVIRONMENT, name), "nodeRank": names.get_node_rank(job), "pod": name}
    return Cause(
        code,
        {**params, "evidence": str(condition.get("message") or condition.get("reason") or "")[:MAX_EVIDENCE_CHARS]},
    )
