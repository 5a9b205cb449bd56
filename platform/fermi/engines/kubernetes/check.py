"""Check whether a Kubernetes cluster can train: reachable, new enough, Fermi allowed to do what it does, GPUs on its
nodes, and what the connection requires installed."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fermi.engines import connection_options
from fermi.engines.certificates import Ending
from fermi.engines.check_results import Finding, Level
from fermi.engines.kubernetes import entry_check, positions, probe
from fermi.engines.kubernetes.client import Client, Refused
from fermi.engines.kubernetes.credentials import Credentials
from fermi.engines.kubernetes.permissions import IN_ENVIRONMENTS, Rule, manifest, wanted
from fermi.engines.kubernetes.pods import GPU_RESOURCE
from fermi.jobs import bounds
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Problem

LEAST = (1, 30)
FEATURES = {"JobSet": "jobset.x-k8s.io", "Kueue": "kueue.x-k8s.io", "DRA": "resource.k8s.io"}
ANONYMOUS = 'User "system:anonymous"'
"""User that the API server takes for the author of a request without credentials
(https://kubernetes.io/docs/reference/access-authn-authz/authentication/, "Anonymous requests")."""
TO_HTTPS = "HTTP request to an HTTPS server"
"""Answer of a Go server to a request without TLS (golang/go, src/net/http/server.go)."""
INSTALL = {
    "JobSet": "https://jobset.sigs.k8s.io/docs/installation/",
    "Kueue": "https://kueue.sigs.k8s.io/docs/installation/",
    "Positions": "https://kueue.sigs.k8s.io/docs/tasks/manage/monitor_pending_workloads/pending_workloads_on_demand/",
}

MAX_NAMESPACES = 20
"""Namespaces beside the one in which tasks run: each is followed by two watches."""

_TEXT = {"type": "string", "minLength": 1}
_NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}
_QUANTITIES = {"type": "object", "additionalProperties": {"type": "string"}}
CONNECTION = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "kubeconfig": {**_TEXT, "description": "path of a file on the platform's hosts"},
        "context": _TEXT,
        "in_cluster": {"type": "boolean", "description": "the service account of the platform's own pods"},
        "namespace": _NAME,
        "environmentNamespaces": {
            "type": "array",
            "items": _NAME,
            "maxItems": MAX_NAMESPACES,
            "description": "other namespaces that have dev environments",
        },
        "project": {**_TEXT, "description": "project of environments that name none"},
        "selector": {**_TEXT, "description": "labels of the pods that are dev environments"},
        "jobset": {"type": "boolean", "description": "one JobSet per attempt instead of a Job per environment"},
        "queue": connection_options.differing(_NAME, "Kueue's LocalQueue that tasks wait in"),
        "priority_classes": connection_options.by_class(
            _NAME, "Kueue's WorkloadPriorityClass, or without `queue` the pods' PriorityClass, of each priority"
        ),
        "python": {**_TEXT, "description": "interpreter in the environments' images"},
        "pod": {"type": "object", "description": "merged into the spec of every training pod"},
        "requests": _QUANTITIES,
        "limits": _QUANTITIES,
        "bounds": bounds.SCHEMA,
        "run_as_user": {"type": "integer", "minimum": 1, "description": "user and group that training pods run as"},
        "shm_gb": {"type": "integer", "minimum": 1},
        "max_run_seconds": {"type": "integer", "minimum": 1},
        "ttl_seconds": {"type": "integer", "minimum": 0},
        "out_of_service_taint": {"type": "boolean", "description": "fence dead nodes with Kubernetes' taint"},
        "environments": {
            "type": "object",
            "additionalProperties": False,
            "description": "how dev environments are made here",
            "properties": {
                "storageClass": {**_TEXT, "description": "of their disks; default: the cluster's own"},
                "deviceClass": {**_TEXT, "description": "DRA: GPUs are claimed of this DeviceClass"},
                "gpuProducts": {
                    "type": "object",
                    "additionalProperties": _TEXT,
                    "description": "by GPU type, the label nvidia.com/gpu.product of the nodes that have it",
                },
            },
        },
        "dcgmUrl": {"type": "string", "pattern": r"^https?://\S+$", "description": "metrics of DCGM's exporter"},
        "data": {
            "type": "object",
            "additionalProperties": False,
            "required": ["volume"],
            "properties": {
                "mountPath": {"type": "string", "pattern": "^/.*[^/]$"},
                "volume": {"type": "object", "minProperties": 1, "description": "a volume source that all nodes reach"},
            },
        },
    },
}


def contradictions(connection: Mapping[str, Any]) -> list[Problem]:
    """Return options that may not go together. Kueue's unit of admission is the Workload: one for each Job, or one for
    a whole JobSet (https://kueue.sigs.k8s.io/docs/concepts/workload/)."""
    if connection.get("queue") and not connection.get("jobset"):
        queues = ", ".join(connection_options.values(connection["queue"]))
        return [Problem("connection.queue", "QUEUE_NEEDS_JOBSET", {"queue": queues})]
    if isinstance(queue := connection.get("queue"), Mapping) and not queue.get("default"):
        return [Problem("connection.queue", "QUEUE_NEEDS_DEFAULT")]
    return []


def findings(connection: Mapping[str, Any]) -> list[Finding]:
    """Return the results of all checks; those of a cluster that does not answer say why."""
    client = Client(connection)
    try:
        version = client.get("/version")
        groups = {group["name"]: group["preferredVersion"]["version"] for group in client.get("/apis")["groups"]}
        return [
            Finding(Level.PASS, "KUBERNETES_REACHABLE", {"namespace": client.namespace}),
            _version(version),
            *_namespace(client),
            *_permissions(client, connection),
            *entry_check.findings(client, connection),
            *_gpus(client),
            *_features(groups, connection),
            *(Finding(Level.FAIL, one.code, one.params, INSTALL["JobSet"]) for one in contradictions(connection)),
            *probe.findings(client, connection),
            *_queues(client, groups, connection),
            *_classes(client, groups, connection),
        ]
    except Refused as refused:
        code = {0: "KUBERNETES_UNREACHABLE", 401: "KUBERNETES_UNAUTHORIZED"}.get(refused.status, "KUBERNETES_REFUSES")
        if ANONYMOUS in refused.message:
            code = "KUBERNETES_NO_CREDENTIALS"
        elif TO_HTTPS in refused.message:
            code = "KUBERNETES_NOT_HTTPS"
        return [Finding(Level.FAIL, code, {"status": refused.status, "why": refused.message})]
    except BackendError as error:
        return [Finding(Level.FAIL, error.code, error.params)]
    finally:
        client.close()


def endings(connection: Mapping[str, Any]) -> list[Ending]:
    """Return until when the credentials of the connection are valid. Raise BackendError."""
    return Credentials(connection).endings()


def _version(answer: Mapping[str, Any]) -> Finding:
    found = tuple(int(re.sub(r"\D.*", "", answer[part]) or 0) for part in ("major", "minor"))
    params = {"version": answer["gitVersion"], "least": ".".join(map(str, LEAST))}
    return Finding(Level.PASS, "KUBERNETES_VERSION", params) if found >= LEAST else Finding(
        Level.FAIL, "KUBERNETES_TOO_OLD", params
    )  # fmt: skip


def _namespace(client: Client) -> Iterator[Finding]:
    """Yield the namespaces that do not exist. One that may not be read may well exist: its permissions show it."""
    for name in client.namespaces:
        trains = name == client.namespace
        try:
            client.get(f"/api/v1/namespaces/{name}")
        except Refused as refused:
            if refused.status == 404:
                yield _missing(name, Level.FAIL if trains else Level.WARN)
            elif refused.status != 403:
                raise
            elif trains:
                yield from _unseen(client)


def _missing(name: str, level: Level) -> Finding:
    return Finding(level, "NAMESPACE_MISSING", {"namespace": name}, f"kubectl create namespace {name}")


def _unseen(client: Client) -> Iterator[Finding]:
    """Yield whether a namespace that may not be read exists. Rights in one are granted inside it, so where there is
    none, nothing is allowed: the API server checks rights first (403) and the namespace then (404)."""
    name = client.namespace
    try:
        body = {"metadata": {"name": "fermi-check", "namespace": name}}
        client.request("POST", client.path("ConfigMap"), query={"dryRun": "All"}, body=body)
    except Refused as refused:
        if refused.status == 404:
            yield _missing(name, Level.FAIL)
        elif refused.status == 403 and refused.code == "ENGINE_FORBIDDEN":
            yield Finding(Level.FAIL, "NAMESPACE_UNSEEN", {"namespace": name}, f"kubectl get namespace {name}")


def _permissions(client: Client, connection: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield one result for each rule that lacks a verb, with what to add to the role."""
    yield from _granted(client, client.namespace, list(wanted(connection)))
    for namespace in client.namespaces[1:]:
        yield from _granted(client, namespace, [(rule, False) for rule in IN_ENVIRONMENTS])


def _granted(client: Client, namespace: str, rules: Sequence[tuple[Rule, bool]]) -> Iterator[Finding]:
    asked = [(rule, needed, verb) for rule, needed in rules for verb in rule.verbs]
    allowed = client.together(lambda one: _may(client, namespace if one[0].namespaced else "", one[0], one[2]), asked)
    missing: dict[tuple[Rule, bool], list[str]] = {}
    for (rule, needed, verb), may in zip(asked, allowed, strict=True):
        if not may:
            missing.setdefault((rule, needed), []).append(verb)
    if namespace == client.namespace and not any(needed for _, needed in missing):
        yield Finding(Level.PASS, "PERMISSIONS_GRANTED", {"namespace": namespace})
    elif namespace != client.namespace and not any(allowed):
        params = {"namespace": namespace, "environments": True}
        yield Finding(Level.WARN, "NAMESPACE_UNSEEN", params, f"kubectl get namespace {namespace}")
        return
    elif not missing:
        yield Finding(Level.PASS, "PERMISSIONS_GRANTED_INSIDE", {"namespace": namespace})
    for (rule, needed), verbs in missing.items():
        params = {
            "namespace": namespace if rule.namespaced else "*",
            "resource": f"{rule.resource}.{rule.group}".rstrip("."),
            "verbs": ", ".join(verbs),
            "role": "Role" if rule.namespaced else "ClusterRole",
            "purpose": rule.purpose,
        }
        level, code = (Level.FAIL, "PERMISSION_MISSING") if needed else (Level.WARN, "PERMISSION_ADVISED")
        yield Finding(level, code, params, manifest([rule]))


def _may(client: Client, namespace: str, rule: Rule, verb: str) -> bool:
    resource, _, subresource = rule.resource.partition("/")
    attributes = {
        "namespace": namespace, "verb": verb, "group": rule.group, "resource": resource, "subresource": subresource,
    }  # fmt: skip
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {name: value for name, value in attributes.items() if value}},
    }
    answer = client.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=review)
    return bool(answer["status"].get("allowed"))


def _gpus(client: Client) -> Iterator[Finding]:
    """Yield which GPUs nodes offer; without permission to read nodes, the missing permission has been reported
    already."""
    try:
        nodes = client.get("/api/v1/nodes")["items"]
    except Refused as refused:
        if refused.status != 403:
            raise
        return
    counts: Counter[str] = Counter()
    for node in nodes:
        for name, quantity in node.get("status", {}).get("allocatable", {}).items():
            if GPU_RESOURCE.search(name) and quantity.isdigit():
                counts[name] += int(quantity)
    if counts := +counts:
        text = ", ".join(f"{name} × {count}" for name, count in sorted(counts.items()))
        yield Finding(Level.PASS, "GPUS_FOUND", {"gpus": text, "nodes": len(nodes)})
    else:
        yield Finding(Level.WARN, "GPUS_NOT_FOUND", {"nodes": len(nodes)})


def _features(groups: Mapping[str, str], connection: Mapping[str, Any]) -> Iterator[Finding]:
    needed = {"JobSet": "jobset", "Kueue": "queue"}
    for feature, group in FEATURES.items():
        if group in groups:
            yield Finding(Level.PASS, "FEATURE_INSTALLED", {"feature": feature, "version": groups[group]})
        elif connection.get(needed.get(feature, "")):
            params = {"feature": feature, "option": needed[feature]}
            yield Finding(Level.FAIL, "FEATURE_MISSING", params, INSTALL[feature])
        else:
            yield Finding(Level.PASS, "FEATURE_ABSENT", {"feature": feature})


def _queues(client: Client, groups: Mapping[str, str], connection: Mapping[str, Any]) -> Iterator[Finding]:
    version = groups.get(FEATURES["Kueue"])
    if not version or not connection.get("queue"):
        return
    for queue in connection_options.values(connection["queue"]):
        path = f"/apis/{FEATURES['Kueue']}/{version}/namespaces/{client.namespace}/localqueues/{queue}"
        if not _is_there(client, path):
            yield Finding(Level.FAIL, "QUEUE_MISSING", {"queue": queue, "namespace": client.namespace})
    if positions.GROUP in groups:
        yield Finding(Level.PASS, "QUEUE_POSITIONS_TOLD")
    else:
        yield Finding(Level.WARN, "QUEUE_POSITIONS_ABSENT", {}, INSTALL["Positions"])


def _classes(client: Client, groups: Mapping[str, str], connection: Mapping[str, Any]) -> Iterator[Finding]:
    version = groups.get(FEATURES["Kueue"])
    if not connection.get("queue"):
        kind, prefix = "PriorityClass", "/apis/scheduling.k8s.io/v1/priorityclasses"
    elif version:
        kind, prefix = "WorkloadPriorityClass", f"/apis/{FEATURES['Kueue']}/{version}/workloadpriorityclasses"
    else:
        return
    for name in dict.fromkeys((connection.get("priority_classes") or {}).values()):
        if not _is_there(client, f"{prefix}/{name}"):
            remedy = f"kubectl get {kind.lower()}"
            yield Finding(Level.FAIL, "PRIORITY_CLASS_MISSING", {"kind": kind, "name": name}, remedy)


def _is_there(client: Client, path: str) -> bool:
    """Return whether an object exists. One that may not be read may well exist: the missing permission has been
    reported."""
    try:
        return client.find(path) is not None
    except Refused as refused:
        if refused.status != 403:
            raise
        return True


def standby(image: str) -> str:
    """Return where the training stack stands by: in the environment's pod."""
    return "environment"
