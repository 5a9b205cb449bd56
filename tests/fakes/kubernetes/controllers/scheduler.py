"""The scheduler: where a pod fits, and why it does not, in the words of the real one."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any

from tests.fakes.kubernetes import conditions, quantities, selectors
from tests.fakes.kubernetes.api import Api
from tests.fakes.kubernetes.resources import CLAIMS, NODES, PODS, RESOURCE_CLAIMS
from tests.fakes.kubernetes.store import Change, Key, Object


class Scheduler:
    """`unschedulable`: name patterns that are kept pending with a message of the test's own."""

    def __init__(self, api: Api) -> None:
        self.api, self.store = api, api.store
        self.unschedulable: list[tuple[str, str]] = []
        self._used: dict[str, Counter[str]] = defaultdict(Counter)
        self._counted: dict[str, tuple[str, Counter[str]]] = {}
        self._waiting: set[Key] = set()

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is NODES and (change.old is None or _placing(change.old) != _placing(change.new)):
            return list(self._waiting)
        if change.resource in (CLAIMS, RESOURCE_CLAIMS):
            return list(self._waiting)
        if change.resource is not PODS:
            return []
        freed = self._count(change)
        waits = change.type != "DELETED" and not change.new["spec"].get("nodeName")
        (self._waiting.add if waits else self._waiting.discard)(change.key)
        return list(self._waiting) if freed else [change.key] if waits else []

    def _count(self, change: Change) -> bool:
        """Books or frees what a pod uses on its node; True when something was freed."""
        pod, uid = change.new, change.new["metadata"]["uid"]
        over = change.type == "DELETED" or pod["status"].get("phase") in ("Succeeded", "Failed")
        if over and uid in self._counted:
            node, asked = self._counted.pop(uid)
            self._used[node].subtract(asked)
            return True
        if not over and uid not in self._counted and (node := pod["spec"].get("nodeName")):
            self._counted[uid] = (node, quantities.requests(pod["spec"]))
            self._used[node].update(self._counted[uid][1])
        return False

    def reconcile(self, key: Key) -> None:
        with self.store.lock:
            pod = self.store.get(PODS, *key)
            if pod is None or pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
                return
            if pod["spec"].get("schedulingGates"):
                message = "Scheduling is blocked due to non-empty scheduling gates"
                self._wait(pod, "SchedulingGated", message)
                return
            node, why = self._place(pod)
            if node:
                self._bind(pod, node)
            else:
                self._wait(pod, "Unschedulable", why)

    def _place(self, pod: Object) -> tuple[str, str]:
        """The node's name, or why there is none."""
        for pattern, message in self.unschedulable:
            if fnmatchcase(pod["metadata"]["name"], pattern):
                return "", message
        if why := self._missing(pod):
            return "", why
        nodes = self.store.all(NODES)
        if not nodes:
            return "", "no nodes available to schedule pods"
        reasons: Counter[str] = Counter()
        pinned = _pinned(pod["spec"])
        for node in nodes:
            if pinned is not None and node["metadata"]["name"] not in pinned:
                reasons["node(s) didn't satisfy plugin(s) [NodeAffinity]"] += 1
                continue
            found = self._obstacles(pod, node)
            if not found:
                return node["metadata"]["name"], ""
            reasons.update(found)
        total = len(nodes)
        listed = sorted(f"{count} {reason}" for reason, count in reasons.items())
        candidates = [node for node in nodes if pinned is None or node["metadata"]["name"] in pinned]
        full = sum(all("Insufficient" in why for why in self._obstacles(pod, node)) for node in candidates)
        victims = [f"{total - full} Preemption is not helpful for scheduling"] if full < total else []
        victims = sorted(victims + ([f"{full} No preemption victims found for incoming pod"] if full else []))
        preemption = f"preemption: 0/{total} nodes are available: {', '.join(victims)}."
        return "", f"0/{total} nodes are available: {', '.join(listed)}. {preemption}"

    def _missing(self, pod: Object) -> str:
        """What the pod names in its namespace that is not there."""
        namespace = pod["metadata"]["namespace"]
        total = len(self.store.all(NODES))
        for volume in pod["spec"].get("volumes") or []:
            if source := volume.get("persistentVolumeClaim"):
                claim = self.store.get(CLAIMS, namespace, source["claimName"])
                if claim is None:
                    why = f'persistentvolumeclaim "{source["claimName"]}" not found'
                elif (claim.get("status") or {}).get("phase") != "Bound":
                    why = "pod has unbound immediate PersistentVolumeClaims"
                else:
                    continue
                helpless = f"{total} Preemption is not helpful for scheduling"
                nobody = f"0/{total} nodes are available"
                return f"{nobody}: {why}. preemption: {nobody}: {helpless}."
        for one in pod["spec"].get("resourceClaims") or []:
            name = one.get("resourceClaimName")
            if name and self.store.get(RESOURCE_CLAIMS, namespace, name) is None:
                return f'resourceclaim "{name}" not found'
        return ""

    def _obstacles(self, pod: Object, node: Object) -> list[str]:
        """The first filter that refuses the node says why; only resources say several things at once."""
        spec = pod["spec"]
        if node["spec"].get("unschedulable"):
            return ["node(s) were unschedulable"]
        for taint in node["spec"].get("taints") or []:
            if taint["effect"] in ("NoSchedule", "NoExecute") and not _tolerated(spec, taint):
                return [f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"]
        if not _affinity(spec, node):
            return ["node(s) didn't match Pod's node affinity/selector"]
        if not self._claims_reach(pod, node):
            return ["cannot allocate all claims"]
        free = node["status"]["allocatable"]
        used = self._used[node["metadata"]["name"]]
        asked = quantities.requests(spec)
        short = [name for name in asked if asked[name] + used[name] > quantities.number(free.get(name, 0))]
        return ["Too many pods" if name == "pods" else f"Insufficient {name}" for name in short]

    def _claims_reach(self, pod: Object, node: Object) -> bool:
        for claim in self._claims(pod):
            place = ((claim.get("status") or {}).get("allocation") or {}).get("nodeSelector")
            if place and not any(_term(term, node) for term in place["nodeSelectorTerms"]):
                return False
        return True

    def _claims(self, pod: Object) -> list[Object]:
        names = [one.get("resourceClaimName") for one in pod["spec"].get("resourceClaims") or []]
        found = [self.store.get(RESOURCE_CLAIMS, pod["metadata"]["namespace"], name) for name in names if name]
        return [claim for claim in found if claim]

    def _bind(self, pod: Object, node: str) -> None:
        for claim in self._claims(pod):
            user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            self.api.change(RESOURCE_CLAIMS, claim, _reserving(user))

        def edit(new: Object) -> None:
            new["spec"]["nodeName"] = node
            conditions.set_condition(new, "PodScheduled", True, probe=True)

        self.api.change(PODS, pod, edit)
        self._waiting.discard((pod["metadata"]["namespace"], pod["metadata"]["name"]))
        asked = quantities.requests(pod["spec"])
        self._counted[pod["metadata"]["uid"]] = (node, asked)
        self._used[node].update(asked)
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        message = f"Successfully assigned {name} to {node}"
        self.api.event(PODS, pod, "Normal", "Scheduled", message, "default-scheduler")

    def _wait(self, pod: Object, reason: str, message: str) -> None:
        self.api.change(
            PODS, pod, lambda new: conditions.set_condition(new, "PodScheduled", False, reason, message, probe=True)
        )
        if reason == "Unschedulable":
            self.api.event(PODS, pod, "Warning", "FailedScheduling", message, "default-scheduler")


def _reserving(user: dict[str, str]) -> Callable[[Object], None]:
    def edit(claim: Object) -> None:
        reserved = claim.setdefault("status", {}).setdefault("reservedFor", [])
        reserved.append(user)

    return edit


def _placing(node: Object) -> Any:
    """What of a node decides where pods may go."""
    return node["spec"], node["status"].get("allocatable"), node["metadata"].get("labels")


def _tolerated(spec: dict[str, Any], taint: dict[str, Any]) -> bool:
    for toleration in spec.get("tolerations") or []:
        same_key = toleration.get("key", taint["key"]) == taint["key"]
        same_value = toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
        if same_key and same_value and toleration.get("effect") in (None, "", taint["effect"]):
            return True
    return False


def _affinity(spec: dict[str, Any], node: Object) -> bool:
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(name) != value for name, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_term(term, node) for term in required["nodeSelectorTerms"])


def _pinned(spec: dict[str, Any]) -> set[str] | None:
    """The nodes named by every term, which alone are then looked at; None when there are no such names."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    names: set[str] = set()
    for term in required["nodeSelectorTerms"] if required else []:
        found = [set(one["values"]) for one in term.get("matchFields") or [] if one["key"] == "metadata.name"]
        if not found:
            return None
        names |= set.intersection(*found)
    return names if required else None


def _term(term: dict[str, Any], node: Object) -> bool:
    fields = {"metadata.name": node["metadata"]["name"]}
    by_field = selectors.label_object({"matchExpressions": term.get("matchFields")}, fields)
    return by_field and selectors.label_object(term, node["metadata"].get("labels") or {})
