"""Who goes when an owner goes: garbage collection, namespaces, and pods that no kubelet will end."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tests.fakes.kubernetes.api import Api
from tests.fakes.kubernetes.errors import Refused
from tests.fakes.kubernetes.resources import CONFIGMAPS, NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS, Resource, of_kind
from tests.fakes.kubernetes.store import Change, Key, Object

Thing = tuple[Resource, Key]
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


class Garbage:
    """Background: what has no owner left goes. Foreground: an owner waits for dependents that block it. Orphan:
    dependents are let go first."""

    def __init__(self, api: Api) -> None:
        self.api, self.store = api, api.store
        self._dependents: dict[str, set[Thing]] = defaultdict(set)

    def keys(self, change: Change) -> Iterable[Thing]:
        thing = (change.resource, change.key)
        for ref in (change.old or {}).get("metadata", {}).get("ownerReferences") or []:
            self._dependents[ref["uid"]].discard(thing)
        meta = change.new["metadata"]
        refs = meta.get("ownerReferences") or []
        dirty: list[Thing] = []
        if change.type == "DELETED":
            dirty += self._dependents.pop(meta["uid"], ())
            for ref in refs:
                if resource := of_kind(ref["apiVersion"], ref["kind"]):
                    place = meta.get("namespace", "") if resource.namespaced else ""
                    dirty.append((resource, (place, ref["name"])))
        else:
            for ref in refs:
                self._dependents[ref["uid"]].add(thing)
            if refs or meta.get("deletionTimestamp"):
                dirty.append(thing)
            if meta.get("deletionTimestamp"):
                dirty += self._dependents.get(meta["uid"], ())
        return dirty

    def reconcile(self, thing: Thing) -> None:
        with self.store.lock:
            resource, key = thing
            obj = self.store.get(resource, *key)
            if obj is None:
                return
            finalizers = obj["metadata"].get("finalizers") or []
            if obj["metadata"].get("deletionTimestamp") and "orphan" in finalizers:
                self._let_go(resource, obj)
            elif obj["metadata"].get("deletionTimestamp") and "foregroundDeletion" in finalizers:
                self._delete_dependents(resource, obj)
            elif obj["metadata"].get("ownerReferences"):
                self._attempt(resource, obj)

    def _existing(self, uid: str) -> list[tuple[Resource, Object]]:
        found = [(resource, self.store.get(resource, *key)) for resource, key in self._dependents.get(uid, ())]
        return [(resource, obj) for resource, obj in found if obj]

    def _let_go(self, resource: Resource, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        for kind, dependent in self._existing(uid):
            self.api.change(kind, dependent, lambda new: _drop_refs(new, {uid}))
        self.api.change(resource, obj, lambda new: new["metadata"]["finalizers"].remove("orphan"))

    def _delete_dependents(self, resource: Resource, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        blocking = False
        for kind, dependent in self._existing(uid):
            blocking |= any(
                ref["uid"] == uid and ref.get("blockOwnerDeletion")
                for ref in dependent["metadata"].get("ownerReferences") or []
            )
            self._attempt(kind, dependent)
        if not blocking or not self._existing(uid):
            self.api.change(resource, obj, lambda new: new["metadata"]["finalizers"].remove("foregroundDeletion"))

    def _attempt(self, resource: Resource, obj: Object) -> None:
        """Deletes what nobody owns any more, or whose last owners wait for it."""
        meta = obj["metadata"]
        if meta.get("deletionTimestamp"):
            return
        solid, waiting, dangling = set(), set(), set()
        for ref in meta.get("ownerReferences") or []:
            owner = self._owner(meta.get("namespace", ""), ref)
            if owner is None:
                dangling.add(ref["uid"])
            elif owner["metadata"].get("deletionTimestamp") and "foregroundDeletion" in (
                owner["metadata"].get("finalizers") or []
            ):
                waiting.add(ref["uid"])
            else:
                solid.add(ref["uid"])
        if solid:
            if dangling or waiting:
                self.api.change(resource, obj, lambda new: _drop_refs(new, dangling | waiting))
            return
        foreground = bool(waiting) and bool(self._existing(meta["uid"]))
        options = {"propagationPolicy": "Foreground" if foreground else "Background"}
        if not waiting and {"orphan", "foregroundDeletion"} & set(meta.get("finalizers") or []):
            options = {}
        self.api.delete(resource, meta.get("namespace", ""), meta["name"],
                        options | {"preconditions": {"uid": meta["uid"]}})  # fmt: skip

    def _owner(self, namespace: str, ref: dict[str, Any]) -> Object | None:
        resource = of_kind(ref["apiVersion"], ref["kind"])
        found = self.store.get(resource, namespace, ref["name"]) if resource else None
        return found if found and found["metadata"]["uid"] == ref["uid"] else None


def _drop_refs(obj: Object, uids: set[str]) -> None:
    refs = [ref for ref in obj["metadata"].get("ownerReferences") or [] if ref["uid"] not in uids]
    obj["metadata"]["ownerReferences"] = refs
    if not refs:
        del obj["metadata"]["ownerReferences"]


class Namespaces:
    """A new one gets its service account; a deleted one loses all it holds, then goes."""

    def __init__(self, api: Api) -> None:
        self.api, self.store = api, api.store

    def keys(self, change: Change) -> Iterable[str]:
        if change.resource is NAMESPACES:
            return [change.key[1]]
        return [change.key[0]] if change.type == "DELETED" and change.key[0] else []

    def reconcile(self, name: str) -> None:
        with self.store.lock:
            namespace = self.store.get(NAMESPACES, "", name)
            if namespace is None:
                return
            if not namespace["metadata"].get("deletionTimestamp"):
                self._furnish(name)
                return
            inside = [(kind, obj) for kind, obj in self.store.everything() if obj["metadata"].get("namespace") == name]
            for resource, obj in inside:
                if not obj["metadata"].get("deletionTimestamp"):
                    self.api.delete(resource, name, obj["metadata"]["name"], {"propagationPolicy": "Background"})
            if not any(obj["metadata"].get("namespace") == name for _, obj in self.store.everything()):
                self.api.change(NAMESPACES, namespace, lambda new: new["spec"].update(finalizers=[]))

    def _furnish(self, name: str) -> None:
        for resource, obj in (
            (SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}),
            (CONFIGMAPS, {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": ""}}),
        ):
            if self.store.get(resource, name, obj["metadata"]["name"]) is None:
                self.api.create(resource, name, obj)


class PodCollector:
    """Ends pods that no kubelet can: never scheduled and deleted; on a node that is gone; terminating on a node that
    an operator marked out of service."""

    def __init__(self, api: Api) -> None:
        self.api, self.store = api, api.store

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is PODS and change.type != "DELETED":
            return [change.key]
        if change.resource is NODES:
            name = change.key[1]
            return [_key(pod) for pod in self.store.all(PODS) if pod["spec"].get("nodeName") == name]
        return []

    def reconcile(self, key: Key) -> None:
        with self.store.lock:
            pod = self.store.get(PODS, *key)
            if pod is None or not self._is_lost(pod):
                return
            meta = pod["metadata"]
            if pod["status"].get("phase") not in ("Succeeded", "Failed"):
                self.api.change(PODS, pod, lambda new: new["status"].update(phase="Failed"))
            try:
                options = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
                self.api.delete(PODS, meta["namespace"], meta["name"], options)
            except Refused as refused:
                if refused.code != 404:
                    raise

    def _is_lost(self, pod: Object) -> bool:
        deleting = "deletionTimestamp" in pod["metadata"]
        name = pod["spec"].get("nodeName")
        if not name:
            return deleting and pod["status"].get("phase") == "Pending"
        node = self.store.get(NODES, "", name)
        if node is None:
            return True
        taints = {taint["key"] for taint in node["spec"].get("taints") or []}
        return deleting and OUT_OF_SERVICE in taints


def _key(obj: Object) -> Key:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]
