"""Conditions of a status, and owner references."""

from typing import Any

from tests.fakes.kubernetes import clock
from tests.fakes.kubernetes.resources import Resource
from tests.fakes.kubernetes.store import Object


def get(obj: Object, kind: str) -> dict[str, Any] | None:
    found = (obj.get("status") or {}).get("conditions") or []
    return next((condition for condition in found if condition["type"] == kind), None)


def holds(obj: Object, *kinds: str) -> bool:
    return any((found := get(obj, kind)) is not None and found["status"] == "True" for kind in kinds)


def set_condition(
    obj: Object, kind: str, status: bool | str, reason: str = "", message: str = "", probe: bool = False
) -> None:
    """In place; `lastTransitionTime` moves only when the status does. `probe`: it has a time of the
    last probe too, as a Job's and a pod's have."""
    status = {True: "True", False: "False"}.get(status, status)  # type: ignore[call-overload]
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    old = get(obj, kind)
    changed = old is None or old["status"] != status
    since = clock.stamp() if changed else old["lastTransitionTime"]  # type: ignore[index]
    new: dict[str, Any] = {"type": kind, "status": status, "lastTransitionTime": since}
    new |= {"reason": reason} if reason else {}
    new |= {"message": message} if message else {}
    new |= {"lastProbeTime": None} if probe else {}
    if old is None:
        conditions.append(new)
    else:
        conditions[conditions.index(old)] = new


def owner(resource: Resource, obj: Object) -> dict[str, Any]:
    """The reference that a controller puts on what it makes for `obj`."""
    meta = obj["metadata"]
    return {
        "apiVersion": resource.api_version(), "kind": resource.kind, "name": meta["name"], "uid": meta["uid"],
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip


def controller_of(obj: Object) -> str:
    """The uid of the object's controller, or ""."""
    refs = obj["metadata"].get("ownerReferences") or []
    return next((ref["uid"] for ref in refs if ref.get("controller")), "")
