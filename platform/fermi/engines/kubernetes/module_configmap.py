"""Our own modules that pods need, as one immutable ConfigMap for each content: shared by attempts and runs, named by a
hash, made when it is missing, removed when nothing needs it any more.

The kubelet does not watch an immutable ConfigMap, and the API server refuses to change its data
(https://kubernetes.io/docs/concepts/configuration/configmap/#configmap-immutable); labels may change, and it may be
deleted.
"""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from fermi.engines.kubernetes import names
from fermi.engines.kubernetes.client import METADATA_ACCEPT, KubernetesClient

MIN_AGE_SECONDS = 86_400.0
"""Least age of one that is removed: those of the release that runs are soon needed again."""
NAME_PREFIX = "fermi-modules-"
Object = dict[str, Any]


def build_config_map(modules: Mapping[str, str], namespace: str) -> Object:
    """Return the ConfigMap of these modules (path -> text). Pure."""
    data = {encode_path(path): text for path, text in modules.items()}
    content = hashlib.sha256(repr(sorted(data.items())).encode()).hexdigest()[:16]
    labels = {names.MANAGED_BY: "fermi", names.MODULES: content}
    meta = {"name": f"{NAME_PREFIX}{content}", "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "immutable": True, "data": data}


def build_label(config_map: Object) -> dict[str, str]:
    """Return the label of objects that need it: while one bears it, the ConfigMap stays."""
    return {names.MODULES: config_map["metadata"]["labels"][names.MODULES]}


def build_volume(name: str, own: str, paths: Iterable[str], config_map: Object, modules: Iterable[str]) -> Object:
    """Return a pod's volume of both: these paths of the ConfigMap `own`, and the modules."""
    sources = [_build_source(own, paths), _build_source(config_map["metadata"]["name"], modules)]
    return {"name": name, "projected": {"sources": sources}}


def encode_path(path: str) -> str:
    """Return the key of a path: keys of ConfigMaps know no folders, so the volume's items map them to paths."""
    return path.replace("/", "__")


def is_modules(obj: Mapping[str, Any]) -> bool:
    """Return whether an object is such a ConfigMap."""
    return obj["kind"] == "ConfigMap" and obj.get("immutable") is True


def ensure_config_map(client: KubernetesClient, config_map: Object) -> None:
    """Create it where it is missing. The object that needs it exists already, so that it is not removed meanwhile."""
    path = client.path("ConfigMap", config_map["metadata"]["name"])
    if client.find(path, accept=METADATA_ACCEPT.format(list="")) is None:
        client.create("ConfigMap", config_map)


def delete_unused(client: KubernetesClient) -> None:
    """Delete those that nothing needs and that are old: of former releases. One that an object came to need in that
    moment is made again."""
    oldest = datetime.now(UTC).timestamp() - MIN_AGE_SECONDS
    made, needed = _list_contents(client)
    for content, created in made.items():
        if content in needed or created > oldest:
            continue
        name = f"{NAME_PREFIX}{content}"
        there = client.find(client.path("ConfigMap", name))
        client.delete("ConfigMap", name, propagation="Background")
        if there is not None and content in _list_contents(client)[1]:
            meta = {field: there["metadata"][field] for field in ("name", "namespace", "labels")}
            client.create("ConfigMap", {**there, "metadata": meta})


def _list_contents(client: KubernetesClient) -> tuple[dict[str, float], set[str]]:
    """Return when each content was made, in unix seconds, and which contents an object needs."""
    query = {"labelSelector": f"{names.SELECTOR},{names.MODULES}"}
    found = (
        client.request("GET", client.path("ConfigMap"), query=query, accept=METADATA_ACCEPT.format(list="List"))[
            "items"
        ]
        or ()
    )
    made, needed = dict[str, float](), set[str]()
    for meta in (item["metadata"] for item in found):
        content = meta["labels"][names.MODULES]
        if meta["name"] == f"{NAME_PREFIX}{content}":
            made[content] = datetime.fromisoformat(meta["creationTimestamp"]).timestamp()
        else:
            needed.add(content)
    return made, needed


def _build_source(name: str, paths: Iterable[str]) -> Object:
    return {"configMap": {"name": name, "items": [{"key": encode_path(path), "path": path} for path in paths]}}
