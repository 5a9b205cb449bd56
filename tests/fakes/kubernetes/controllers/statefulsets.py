"""StatefulSets of one replica at most, and disks for the claims of their pods."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from tests.fakes.kubernetes.api import Api
from tests.fakes.kubernetes.errors import Refused
from tests.fakes.kubernetes.kubelet.view import CLAIM_PATH
from tests.fakes.kubernetes.resources import CLAIMS, PODS, STATEFUL_SETS
from tests.fakes.kubernetes.store import Change, Object, copy

REVISION = "controller-revision-hash"


class StatefulSets:
    """A pod of an older template is replaced (RollingUpdate), once it is gone: two of one name there are never."""

    def __init__(self, api: Api) -> None:
        self.api, self.store = api, api.store

    def keys(self, change: Change) -> Iterable[tuple[str, str]]:
        namespace, name = change.key
        if change.resource is STATEFUL_SETS:
            return [(namespace, name)]
        return [(namespace, name.removesuffix("-0"))] if change.resource is PODS and name.endswith("-0") else []

    def reconcile(self, key: tuple[str, str]) -> None:
        namespace, name = key
        made = self.store.get(STATEFUL_SETS, namespace, name)
        if made is None or "deletionTimestamp" in made["metadata"]:
            return
        pod = self.store.get(PODS, namespace, f"{name}-0")
        wanted = made["spec"]["replicas"] > 0
        going = pod is not None and "deletionTimestamp" in pod["metadata"]
        revision = f"{hash(orjson.dumps(made['spec']['template'], option=orjson.OPT_SORT_KEYS)) & 0xFFFFFFFF:x}"
        if pod is None and wanted:
            self._create(made, revision)
        elif pod and not going and not (wanted and pod["metadata"]["labels"].get(REVISION) == revision):
            self.api.delete(PODS, namespace, f"{name}-0")

    def _create(self, made: Object, revision: str) -> None:
        meta, template = made["metadata"], copy(made["spec"]["template"])
        own = {REVISION: revision, "statefulset.kubernetes.io/pod-name": f"{meta['name']}-0"}
        owner = {
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": meta["name"], "uid": meta["uid"],
            "controller": True, "blockOwnerDeletion": True,
        }  # fmt: skip
        about: dict[str, Any] = {
            **template.get("metadata", {}), "name": f"{meta['name']}-0", "ownerReferences": [owner],
        }  # fmt: skip
        about["labels"] = {**about.get("labels", {}), **own}
        spec = {**template["spec"], "hostname": f"{meta['name']}-0"}
        if service := made["spec"].get("serviceName"):
            spec["subdomain"] = service
        try:
            self.api.create(PODS, meta["namespace"], {"metadata": about, "spec": spec})
        except Refused as refused:
            said = f"create Pod {meta['name']}-0 in StatefulSet {meta['name']} failed error: {refused.message}"
            self.api.event(STATEFUL_SETS, made, "Warning", "FailedCreate", said, "statefulset-controller")


class Provisioner:
    """The cluster's storage class: each claim gets a folder."""

    def __init__(self, api: Api, scratch: Path) -> None:
        self.api, self.store, self.folder = api, api.store, scratch / "disks"

    def keys(self, change: Change) -> Iterable[tuple[str, str]]:
        return [change.key] if change.resource is CLAIMS and change.type == "ADDED" else []

    def reconcile(self, key: tuple[str, str]) -> None:
        claim = self.store.get(CLAIMS, *key)
        if claim is None or CLAIM_PATH in (claim["metadata"].get("annotations") or {}):
            return
        folder = self.folder / claim["metadata"]["uid"]
        folder.mkdir(parents=True)

        def bind(new: Object) -> None:
            new["metadata"].setdefault("annotations", {})[CLAIM_PATH] = str(folder)
            new["status"] = {"phase": "Bound"}

        self.api.change(CLAIMS, claim, bind)
