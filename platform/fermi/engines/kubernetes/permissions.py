"""Permissions that Fermi needs in a cluster, and their purpose: the one list behind `fermi clusters check`, the RBAC
manifest and the chart."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import yaml

Purpose = Literal[
    "training", "environments", "claims", "jobset", "kueue", "positions", "classes", "dra", "discovery", "nodes",
    "fencing", "taint", "inside", "secrets",
]  # fmt: skip
"""`training` is needed always, `jobset`, `kueue` and `taint` where the connection asks for them; without the others
training works, but less is known of the cluster and of its queue, what ran on a dead node is not given up, and no dev
environments can be made (`environments`, and `claims` where the connection names a DeviceClass), no ranks run inside of
environments and no commands beside ranks (`inside`), and values of secrets outlive their attempt by minutes
(`secrets`)."""

READ_VERBS = ("get", "list", "watch")
WRITE_VERBS = ("create", "delete", "patch")


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """Permission with its purpose. `resource` may name a subresource: `pods/log`. `namespaced` False needs a
    ClusterRole."""

    purpose: Purpose
    group: str
    resource: str
    verbs: tuple[str, ...]
    namespaced: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return the rule of a Role or ClusterRole."""
        return {"apiGroups": [self.group], "resources": [self.resource], "verbs": list(self.verbs)}


RULES = (
    PermissionRule("training", "", "configmaps", READ_VERBS + WRITE_VERBS),
    PermissionRule("training", "", "secrets", ("create",)),  # never read
    PermissionRule(
        "secrets", "", "secrets", ("delete",)
    ),  # without it removed with the ConfigMap that owns it, minutes later
    PermissionRule("training", "", "services", READ_VERBS + WRITE_VERBS),
    PermissionRule("training", "", "pods", (*READ_VERBS, "delete")),
    PermissionRule("training", "", "pods/log", ("get",)),
    PermissionRule("training", "", "events", ("list", "watch")),
    PermissionRule("training", "batch", "jobs", READ_VERBS + WRITE_VERBS),
    PermissionRule("environments", "apps", "statefulsets", (*WRITE_VERBS, "update")),
    PermissionRule("environments", "", "persistentvolumeclaims", ("get", "create", "delete", "patch")),
    PermissionRule("environments", "", "pods/portforward", ("get", "create")),
    PermissionRule("inside", "", "pods/exec", ("get", "create")),
    PermissionRule("claims", "resource.k8s.io", "resourceclaims", ("create", "delete")),
    PermissionRule("jobset", "jobset.x-k8s.io", "jobsets", READ_VERBS + WRITE_VERBS),
    PermissionRule("kueue", "kueue.x-k8s.io", "localqueues", ("get",)),
    PermissionRule("kueue", "kueue.x-k8s.io", "workloads", READ_VERBS),
    PermissionRule("positions", "visibility.kueue.x-k8s.io", "localqueues/pendingworkloads", ("get",)),
    PermissionRule("dra", "resource.k8s.io", "resourceclaims", ("get", "list")),
    PermissionRule("discovery", "apps", "statefulsets", READ_VERBS),
    PermissionRule("nodes", "", "nodes", READ_VERBS, namespaced=False),
    PermissionRule("fencing", "coordination.k8s.io", "leases", ("get", "list"), namespaced=False),
    PermissionRule("classes", "kueue.x-k8s.io", "workloadpriorityclasses", ("get",), namespaced=False),
    PermissionRule("classes", "scheduling.k8s.io", "priorityclasses", ("get",), namespaced=False),
    PermissionRule("taint", "", "nodes", ("patch",), namespaced=False),
)

ENVIRONMENT_RULES = (
    PermissionRule("inside", "", "pods", READ_VERBS),
    PermissionRule("inside", "", "pods/exec", ("get", "create")),
    PermissionRule("discovery", "apps", "statefulsets", READ_VERBS),
    PermissionRule("dra", "resource.k8s.io", "resourceclaims", ("get",)),
)
"""Rules in a namespace that only has environments. A WebSocket of `pods/exec` begins with a GET: Kubernetes up to 1.34
requires `get` alone, later ones `create` besides (feature gate AuthorizePodWebsocketUpgradeCreatePermission)."""


def iterate_rules(connection: Mapping[str, Any]) -> Iterator[tuple[PermissionRule, bool]]:
    """Yield each rule that this connection uses, and whether training fails without it."""
    needed: dict[Purpose, bool] = {
        "training": True,
        "jobset": bool(connection.get("jobset")),
        "kueue": bool(connection.get("queue")),
        "taint": bool(connection.get("out_of_service_taint")),
    }
    queue, classes = bool(connection.get("queue")), bool(connection.get("priority_classes"))
    for rule in RULES:
        claims = bool((connection.get("environments") or {}).get("deviceClass"))
        useful = {"claims": claims, "positions": queue, "classes": classes and queue == rule.group.startswith("kueue.")}
        if (needed | useful).get(rule.purpose, True):
            yield rule, rule.purpose in needed


def format_rules(rules: Iterable[PermissionRule]) -> str:
    """Return the rules as YAML of a Role."""
    text: str = yaml.safe_dump([rule.to_json() for rule in rules], sort_keys=False, default_flow_style=None)
    return text
