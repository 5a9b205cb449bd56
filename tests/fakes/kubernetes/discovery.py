"""/version, /api and /apis: what is installed."""

from collections.abc import Iterable
from typing import Any

from tests.fakes.kubernetes.resources import Resource, served

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def version(text: str) -> dict[str, Any]:
    major, minor = text.split(".")[:2]
    return {
        "major": major, "minor": minor, "gitVersion": f"v{text}", "gitCommit": "0" * 40, "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z", "goVersion": "go1.26.0", "compiler": "gc", "platform": "linux/amd64",
    }  # fmt: skip


def answer(parts: list[str], features: Iterable[str]) -> dict[str, Any] | None:
    """For the path's parts; None when there is no such path."""
    found = served(features)
    match parts:
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            groups = sorted({resource.group for resource in found} - {""})
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(group, found) for group in groups]}
        case ["apis", group] if any(resource.group == group for resource in found):
            return {"kind": "APIGroup", "apiVersion": "v1"} | _group(group, found)
        case ["api", "v1"]:
            return _resources("", "v1", found)
        case ["apis", group, name] if any(r.group == group and name in r.versions for r in found):
            return _resources(group, name, found)
    return None


def _group(group: str, found: list[Resource]) -> dict[str, Any]:
    names = next(resource.versions for resource in found if resource.group == group)
    versions = [{"groupVersion": f"{group}/{name}", "version": name} for name in names]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resources(group: str, name: str, found: list[Resource]) -> dict[str, Any]:
    listed = []
    for resource in found:
        if resource.group == group and name in resource.versions:
            about = {"singularName": resource.kind.lower(), "namespaced": resource.namespaced, "kind": resource.kind}
            verbs = ["create"] if resource.plural.endswith("reviews") else VERBS
            listed.append({"name": resource.plural, **about, "verbs": verbs})
            for sub in resource.subresources:
                listed.append({"name": f"{resource.plural}/{sub}", **about, "singularName": "", "verbs": ["get"]})
    version = f"{group}/{name}" if group else name
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": listed}
