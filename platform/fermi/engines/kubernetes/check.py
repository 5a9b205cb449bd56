"""Check whether a Kubernetes cluster can train: reachable, new enough, Fermi allowed to do what it does, GPUs on its
nodes, and what the connection requires installed."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fermi.engines import connection_options
from fermi.engines.certificates import CredentialExpiry
from fermi.engines.check_results import CheckLevel, CheckResult
from fermi.engines.kubernetes import entry_check, positions, probe
from fermi.engines.kubernetes.client import KubernetesApiError, KubernetesClient
from fermi.engines.kubernetes.credentials import KubernetesCredentials
from fermi.engines.kubernetes.environment_pods import GPU_RESOURCE
from fermi.engines.kubernetes.permissions import ENVIRONMENT_RULES, PermissionRule, format_rules, iterate_rules
from fermi.jobs import bounds
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Problem

MIN_VERSION = (1, 30)
FEATURE_GROUPS = {"JobSet": "jobset.x-k8s.io", "Kueue": "kueue.x-k8s.io", "DRA": "resource.k8s.io"}
ANONYMOUS_USER = 'User "system:anonymous"'
"""User that the API server takes for the author of a request without credentials
(https://kubernetes.io/docs/reference/access-authn-authz/authentication/, "Anonymous requests")."""
PLAIN_HTTP_ANSWER = "HTTP request to an HTTPS server"
"""Answer of a Go server to a request without TLS (golang/go, src/net/http/server.go)."""
INSTALL_URLS = {
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
        "offline": {"type": "boolean"},
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
        "queue": connection_options.build_option_schema(_NAME, "Kueue's LocalQueue that tasks wait in"),
        "priority_classes": connection_options.build_class_schema(
            _NAME, "Kueue's WorkloadPriorityClass, or without `queue` the pods' PriorityClass, of each priority"
        ),
        "python": {**_TEXT, "description": "interpreter in the environments' images"},
        "pod": {"type": "object", "description": "merged into the spec of every training pod"},
        "requests": _QUANTITIES,
        "limits": _QUANTITIES,
        "bounds": bounds.BOUNDS_SCHEMA,
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
        queues = ", ".join(connection_options.list_option_values(connection["queue"]))
        return [Problem("connection.queue", "QUEUE_NEEDS_JOBSET", {"queue": queues})]
    if isinstance(queue := connection.get("queue"), Mapping) and not queue.get("default"):
        return [Problem("connection.queue", "QUEUE_NEEDS_DEFAULT")]
    return []


def findings(connection: Mapping[str, Any]) -> list[CheckResult]:
    """Return the results of all checks; those of a cluster that does not answer say why."""
    client = KubernetesClient(connection)
    try:
        version = client.get("/version")
        groups = {group["name"]: group["preferredVersion"]["version"] for group in client.get("/apis")["groups"]}
        return [
            CheckResult(CheckLevel.PASS, "KUBERNETES_REACHABLE", {"namespace": client.namespace}),
            _check_version(version),
            *_check_namespaces(client),
            *_check_permissions(client, connection),
            *entry_check.check_entry(client, connection),
            *_check_gpus(client),
            *_check_features(groups, connection),
            *(
                CheckResult(CheckLevel.FAIL, one.code, one.params, INSTALL_URLS["JobSet"])
                for one in contradictions(connection)
            ),
            *probe.check_volume(client, connection),
            *_check_queues(client, groups, connection),
            *_check_priority_classes(client, groups, connection),
        ]
    except KubernetesApiError as refused:
        code = {0: "KUBERNETES_UNREACHABLE", 401: "KUBERNETES_UNAUTHORIZED"}.get(refused.status, "KUBERNETES_REFUSES")
        if ANONYMOUS_USER in refused.message:
            code = "KUBERNETES_NO_CREDENTIALS"
        elif PLAIN_HTTP_ANSWER in refused.message:
            code = "KUBERNETES_NOT_HTTPS"
        return [CheckResult(CheckLevel.FAIL, code, {"status": refused.status, "why": refused.message})]
    except BackendError as error:
        return [CheckResult(CheckLevel.FAIL, error.code, error.params)]
    finally:
        client.close()


def endings(connection: Mapping[str, Any]) -> list[CredentialExpiry]:
    """Return until when the credentials of the connection are valid. Raise BackendError."""
    return KubernetesCredentials(connection).endings()


def _check_version(answer: Mapping[str, Any]) -> CheckResult:
    found = tuple(int(re.sub(r"\D.*", "", answer[part]) or 0) for part in ("major", "minor"))
    params = {"version": answer["gitVersion"], "least": ".".join(map(str, MIN_VERSION))}
    return CheckResult(CheckLevel.PASS, "KUBERNETES_VERSION", params) if found >= MIN_VERSION else CheckResult(
        CheckLevel.FAIL, "KUBERNETES_TOO_OLD", params
    )  # fmt: skip


def _check_namespaces(client: KubernetesClient) -> Iterator[CheckResult]:
    """Yield the namespaces that do not exist. One that may not be read may well exist: its permissions show it."""
    for name in client.namespaces:
        trains = name == client.namespace
        try:
            client.get(f"/api/v1/namespaces/{name}")
        except KubernetesApiError as refused:
            if refused.status == 404:
                yield _build_missing_namespace(name, CheckLevel.FAIL if trains else CheckLevel.WARN)
            elif refused.status != 403:
                raise
            elif trains:
                yield from _check_hidden_namespace(client)


def _build_missing_namespace(name: str, level: CheckLevel) -> CheckResult:
    return CheckResult(level, "NAMESPACE_MISSING", {"namespace": name}, f"kubectl create namespace {name}")


def _check_hidden_namespace(client: KubernetesClient) -> Iterator[CheckResult]:
    """Yield whether a namespace that may not be read exists. Rights in one are granted inside it, so where there is
    none, nothing is allowed: the API server checks rights first (403) and the namespace then (404)."""
    name = client.namespace
    try:
        body = {"metadata": {"name": "fermi-check", "namespace": name}}
        client.request("POST", client.path("ConfigMap"), query={"dryRun": "All"}, body=body)
    except KubernetesApiError as refused:
        if refused.status == 404:
            yield _build_missing_namespace(name, CheckLevel.FAIL)
        elif refused.status == 403 and refused.code == "ENGINE_FORBIDDEN":
            yield CheckResult(CheckLevel.FAIL, "NAMESPACE_UNSEEN", {"namespace": name}, f"kubectl get namespace {name}")


def _check_permissions(client: KubernetesClient, connection: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Yield one result for each rule that lacks a verb, with what to add to the role."""
    yield from _check_rules(client, client.namespace, list(iterate_rules(connection)))
    for namespace in client.namespaces[1:]:
        yield from _check_rules(client, namespace, [(rule, False) for rule in ENVIRONMENT_RULES])


def _check_rules(
    client: KubernetesClient, namespace: str, rules: Sequence[tuple[PermissionRule, bool]]
) -> Iterator[CheckResult]:
    asked = [(rule, needed, verb) for rule, needed in rules for verb in rule.verbs]
    allowed = client.together(
        lambda one: _is_allowed(client, namespace if one[0].namespaced else "", one[0], one[2]), asked
    )
    missing: dict[tuple[PermissionRule, bool], list[str]] = {}
    for (rule, needed, verb), may in zip(asked, allowed, strict=True):
        if not may:
            missing.setdefault((rule, needed), []).append(verb)
    if namespace == client.namespace and not any(needed for _, needed in missing):
        yield CheckResult(CheckLevel.PASS, "PERMISSIONS_GRANTED", {"namespace": namespace})
    elif namespace != client.namespace and not any(allowed):
        params = {"namespace": namespace, "environments": True}
        yield CheckResult(CheckLevel.WARN, "NAMESPACE_UNSEEN", params, f"kubectl get namespace {namespace}")
        return
    elif not missing:
        yield CheckResult(CheckLevel.PASS, "PERMISSIONS_GRANTED_INSIDE", {"namespace": namespace})
    for (rule, needed), verbs in missing.items():
        params = {
            "namespace": namespace if rule.namespaced else "*",
            "resource": f"{rule.resource}.{rule.group}".rstrip("."),
            "verbs": ", ".join(verbs),
            "role": "Role" if rule.namespaced else "ClusterRole",
            "purpose": rule.purpose,
        }
        level, code = (CheckLevel.FAIL, "PERMISSION_MISSING") if needed else (CheckLevel.WARN, "PERMISSION_ADVISED")
        yield CheckResult(level, code, params, format_rules([rule]))


def _is_allowed(client: KubernetesClient, namespace: str, rule: PermissionRule, verb: str) -> bool:
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


def _check_gpus(client: KubernetesClient) -> Iterator[CheckResult]:
    """Yield which GPUs nodes offer; without permission to read nodes, the missing permission has been reported
    already."""
    try:
        nodes = client.get("/api/v1/nodes")["items"]
    except KubernetesApiError as refused:
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
        yield CheckResult(CheckLevel.PASS, "GPUS_FOUND", {"gpus": text, "nodes": len(nodes)})
    else:
        yield CheckResult(CheckLevel.WARN, "GPUS_NOT_FOUND", {"nodes": len(nodes)})


def _check_features(groups: Mapping[str, str], connection: Mapping[str, Any]) -> Iterator[CheckResult]:
    needed = {"JobSet": "jobset", "Kueue": "queue"}
    for feature, group in FEATURE_GROUPS.items():
        if group in groups:
            yield CheckResult(CheckLevel.PASS, "FEATURE_INSTALLED", {"feature": feature, "version": groups[group]})
        elif connection.get(needed.get(feature, "")):
            params = {"feature": feature, "option": needed[feature]}
            yield CheckResult(CheckLevel.FAIL, "FEATURE_MISSING", params, INSTALL_URLS[feature])
        else:
            yield CheckResult(CheckLevel.PASS, "FEATURE_ABSENT", {"feature": feature})


def _check_queues(
    client: KubernetesClient, groups: Mapping[str, str], connection: Mapping[str, Any]
) -> Iterator[CheckResult]:
    version = groups.get(FEATURE_GROUPS["Kueue"])
    if not version or not connection.get("queue"):
        return
    for queue in connection_options.list_option_values(connection["queue"]):
        path = f"/apis/{FEATURE_GROUPS['Kueue']}/{version}/namespaces/{client.namespace}/localqueues/{queue}"
        if not _exists(client, path):
            yield CheckResult(CheckLevel.FAIL, "QUEUE_MISSING", {"queue": queue, "namespace": client.namespace})
    if positions.API_GROUP in groups:
        yield CheckResult(CheckLevel.PASS, "QUEUE_POSITIONS_TOLD")
    else:
        yield CheckResult(CheckLevel.WARN, "QUEUE_POSITIONS_ABSENT", {}, INSTALL_URLS["Positions"])


def _check_priority_classes(
    client: KubernetesClient, groups: Mapping[str, str], connection: Mapping[str, Any]
) -> Iterator[CheckResult]:
    version = groups.get(FEATURE_GROUPS["Kueue"])
    if not connection.get("queue"):
        kind, prefix = "PriorityClass", "/apis/scheduling.k8s.io/v1/priorityclasses"
    elif version:
        kind, prefix = "WorkloadPriorityClass", f"/apis/{FEATURE_GROUPS['Kueue']}/{version}/workloadpriorityclasses"
    else:
        return
    for name in dict.fromkeys((connection.get("priority_classes") or {}).values()):
        if not _exists(client, f"{prefix}/{name}"):
            remedy = f"kubectl get {kind.lower()}"
            yield CheckResult(CheckLevel.FAIL, "PRIORITY_CLASS_MISSING", {"kind": kind, "name": name}, remedy)


def _exists(client: KubernetesClient, path: str) -> bool:
    """Return whether an object exists. One that may not be read may well exist: the missing permission has been
    reported."""
    try:
        return client.find(path) is not None
    except KubernetesApiError as refused:
        if refused.status != 403:
            raise
        return True


def standby(image: str) -> str:
    """Return where the training stack stands by: in the environment's pod."""
    return "environment"
