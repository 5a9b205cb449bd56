"""What the cluster makes of a node that no longer answers."""

from collections.abc import Iterable

from tests.fakes.kubernetes import clock, conditions
from tests.fakes.kubernetes.api import Api
from tests.fakes.kubernetes.errors import Refused
from tests.fakes.kubernetes.resources import NODES, PODS
from tests.fakes.kubernetes.store import Change, Object

UNREACHABLE = "node.kubernetes.io/unreachable"
STOPPED = ("NodeStatusUnknown", "Kubelet stopped posting node status.")


class NodeLifecycle:
    """A node in `lost` becomes NotReady, is tainted, and its pods are asked to go: at once, where a real cluster waits
    40 s and then as long as the pods tolerate (300 s unless they say otherwise)."""

    def __init__(self, api: Api) -> None:
        self.api, self.store = api, api.store
        self.lost: set[str] = set()
        self.evicts = True

    def keys(self, change: Change) -> Iterable[str]:
        return [change.key[1]] if change.resource is NODES and change.type != "DELETED" else []

    def reconcile(self, name: str) -> None:
        with self.store.lock:
            node = self.store.get(NODES, "", name)
            if node is None:
                return
            self.api.change(NODES, node, self._mark_lost if name in self.lost else _mark_ready)
            if name in self.lost:
                for pod in [pod for pod in self.store.all(PODS) if pod["spec"].get("nodeName") == name]:
                    self._let_go(pod)

    def _mark_lost(self, node: Object) -> None:
        for kind in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure"):
            conditions.set_condition(node, kind, "Unknown", *STOPPED)
        taints = node["spec"].setdefault("taints", [])
        for effect in ("NoSchedule", "NoExecute"):
            if not any(taint["key"] == UNREACHABLE and taint["effect"] == effect for taint in taints):
                taints.append({"key": UNREACHABLE, "effect": effect, "timeAdded": clock.stamp()})

    def _let_go(self, pod: Object) -> None:
        def edit(new: Object) -> None:
            conditions.set_condition(new, "Ready", False, probe=True)
            if self.evicts:
                why = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
                conditions.set_condition(new, "DisruptionTarget", True, *why, probe=True)

        if pod["status"].get("phase") in ("Succeeded", "Failed"):
            return
        self.api.change(PODS, pod, edit)
        if self.evicts and "deletionTimestamp" not in pod["metadata"]:
            try:
                self.api.delete(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
            except Refused as refused:
                if refused.code != 404:
                    raise


def _mark_ready(node: Object) -> None:
    conditions.set_condition(node, "Ready", True, "KubeletReady", "kubelet is posting ready status")
    for kind in ("MemoryPressure", "DiskPressure", "PIDPressure"):
        conditions.set_condition(node, kind, False, f"KubeletHasNo{kind}", f"kubelet has no {kind}")
    taints = [taint for taint in node["spec"].get("taints") or [] if taint["key"] != UNREACHABLE]
    node["spec"]["taints"] = taints
    if not taints:
        del node["spec"]["taints"]
