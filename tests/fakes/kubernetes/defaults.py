"""What the API server fills in when an object is created."""

import base64
from typing import Any

from tests.fakes.kubernetes.resources import (
    CLAIMS,
    JOBS,
    JOBSETS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)
from tests.fakes.kubernetes.store import Object


def fill(resource: Resource, obj: Object) -> None:
    """In place."""
    if resource is PODS:
        pod_spec(obj["spec"])
        obj["status"] = {"phase": "Pending", "qosClass": _qos(obj["spec"])}
    elif resource is JOBS:
        job(obj)
    elif resource is JOBSETS:
        jobset(obj)
    elif resource is SERVICES:
        service(obj["spec"])
    elif resource is STATEFUL_SETS:
        stateful_set(obj)
    elif resource is CLAIMS:
        obj["spec"].setdefault("volumeMode", "Filesystem")
        obj["status"] = {"phase": "Pending"}
    elif resource is SECRETS:
        secret(obj)
    elif resource is NODES:
        obj["status"] = {"allocatable": {}}
    elif resource is NAMESPACES:
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"]["name"]
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}


def secret(obj: Object) -> None:
    """`stringData` is write-only: it becomes `data`, over what is there, and is never given back (Kubernetes' API
    reference, Secret v1; done in pkg/apis/core/v1/conversion.go)."""
    given = {name: base64.b64encode(text.encode()).decode() for name, text in obj.pop("stringData", {}).items()}
    obj["data"] = {**obj.get("data", {}), **given}
    obj.setdefault("type", "Opaque")


def pod_spec(spec: dict[str, Any]) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        tag = container["image"].rpartition("/")[2].partition(":")[2]
        container.setdefault("imagePullPolicy", "Always" if tag in ("", "latest") else "IfNotPresent")
        resources = container.setdefault("resources", {})
        if limits := resources.get("limits"):
            resources["requests"] = {**limits, **(resources.get("requests") or {})}
    for volume in spec.get("volumes") or []:
        if (source := volume.get("configMap")) is not None:
            source.setdefault("defaultMode", 0o644)


def _qos(spec: dict[str, Any]) -> str:
    resources = [container.get("resources") or {} for container in spec["containers"]]
    if not any(resources):
        return "BestEffort"
    same = all(one.get("limits") and one.get("limits") == one.get("requests") for one in resources)
    return "Guaranteed" if same else "Burstable"


def job(obj: Object) -> None:
    """Also what the admission of a Job adds: the selector and the labels of its pods."""
    spec, meta = obj["spec"], obj["metadata"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": meta["uid"]}}
    labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
    for prefix in ("", "batch.kubernetes.io/"):
        labels[f"{prefix}controller-uid"], labels[f"{prefix}job-name"] = meta["uid"], meta["name"]
    pod_spec(spec["template"]["spec"])
    obj["status"] = {}


def stateful_set(obj: Object) -> None:
    spec = obj["spec"]
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
    spec.setdefault("persistentVolumeClaimRetentionPolicy", {"whenDeleted": "Retain", "whenScaled": "Retain"})
    pod_spec(spec["template"]["spec"])
    obj.setdefault("status", {"replicas": 0})


def jobset(obj: Object) -> None:
    spec = obj["spec"]
    spec.setdefault("suspend", False)
    network = spec.setdefault("network", {})
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    network.setdefault("subdomain", obj["metadata"]["name"])
    spec.setdefault("startupPolicy", {}).setdefault("startupPolicyOrder", "AnyOrder")
    spec.setdefault("successPolicy", {}).setdefault("operator", "All")
    for replicated in spec["replicatedJobs"]:
        replicated.setdefault("replicas", 1)
        replicated.setdefault("groupName", "default")
        job_spec = replicated["template"]["spec"]
        job_spec.setdefault("completionMode", "Indexed")
        job_spec["template"]["spec"].setdefault("restartPolicy", "OnFailure")
    obj["status"] = {}


def service(spec: dict[str, Any]) -> None:
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("clusterIP", "10.96.0.10")
    spec["clusterIPs"] = [spec["clusterIP"]]
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port["port"])
