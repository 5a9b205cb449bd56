"""Lists and watches: pages, selectors, versions."""

import base64
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tests.fakes.kubernetes import selectors
from tests.fakes.kubernetes.errors import Refused, expired
from tests.fakes.kubernetes.resources import Resource
from tests.fakes.kubernetes.store import Change, Object, Store

LOOK_SECONDS = 0.25
META_V1 = "meta.k8s.io/v1"
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True)
class Asked:
    """What a list or watch is about, from the request's query."""

    resource: Resource
    version: str
    namespace: str
    query: Mapping[str, str]
    metadata_only: bool = False

    def matches(self, obj: Object | None) -> bool:
        if obj is None or (self.namespace and obj["metadata"].get("namespace") != self.namespace):
            return False
        return self._labels(obj) and self._fields(obj)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_labels", selectors.labels(self.query.get("labelSelector", "")))
        object.__setattr__(self, "_fields", selectors.fields(self.resource, self.query.get("fieldSelector", "")))

    def serialize(self, obj: Object) -> Object:
        if self.metadata_only:
            return {"kind": "PartialObjectMetadata", "apiVersion": META_V1, "metadata": obj["metadata"]}
        return obj | {"apiVersion": self.resource.api_version(self.version)}


def listing(store: Store, asked: Asked) -> dict[str, Any]:
    """Raises 410 when a page is asked for whose snapshot is no longer known."""
    limit = int(asked.query.get("limit") or 0)
    with store.lock:
        version, after = store.version, ("", "")
        if token := asked.query.get("continue"):
            version, *after_list = orjson.loads(base64.urlsafe_b64decode(token))
            after = (after_list[0], after_list[1])
            try:
                objects = store.at(asked.resource, asked.namespace, version)
            except Refused:
                message = (
                    "The provided continue parameter is too old to display a consistent list result. You can start a "
                    "new list without the continue parameter, or use the continue token in this response to retrieve "
                    "the remainder of the results. Continuing with the provided token results in an inconsistent list"
                )
                raise expired(message) from None
        else:
            objects = store.all(asked.resource, asked.namespace)
    places = [(obj["metadata"].get("namespace", ""), obj["metadata"]["name"], obj) for obj in objects]
    found = [obj for namespace, name, obj in places if (namespace, name) > after and asked.matches(obj)]
    meta: dict[str, Any] = {"resourceVersion": str(version)}
    if limit and len(found) > limit:
        last = found[limit - 1]["metadata"]
        token = orjson.dumps([version, last.get("namespace", ""), last["name"]])
        meta |= {"continue": base64.urlsafe_b64encode(token).decode(), "remainingItemCount": len(found) - limit}
        found = found[:limit]
    custom = "x-k8s.io" in asked.resource.group
    if asked.metadata_only:
        items = [asked.serialize(obj) for obj in found]
        return {"kind": "PartialObjectMetadataList", "apiVersion": META_V1, "metadata": meta, "items": items or None}
    items = [asked.serialize(obj) if custom else _without_kind(obj) for obj in found]
    return {
        "kind": f"{asked.resource.kind}List", "apiVersion": asked.resource.api_version(asked.version),
        "metadata": meta, "items": items,
    }  # fmt: skip


def _without_kind(obj: Object) -> Object:
    """Items of a built-in kind's list do not repeat what they are."""
    return {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}


def events(
    store: Store, asked: Asked, ended: Callable[[], bool], bookmark_seconds: float
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Batches of watch events: ("events", …), and ("", []) now and then so that the caller can look whether anybody
    still listens. Ends at `timeoutSeconds` (with a bookmark), or after an ERROR event."""
    seconds = float(asked.query.get("timeoutSeconds") or 0) or 1800.0
    deadline = time.monotonic() + seconds
    bookmarks = asked.query.get("allowWatchBookmarks") == "true"
    next_bookmark = time.monotonic() + bookmark_seconds
    version, first = _beginning(store, asked)
    if first:
        yield "events", first
    while not ended():
        try:
            with store.lock:
                changes = store.since(asked.resource, version)
                if not changes:
                    store.changed.wait(max(0.0, min(LOOK_SECONDS, deadline - time.monotonic())))
                    changes = store.since(asked.resource, version)
                current = changes[-1].version if changes else store.version
        except Refused as refused:
            yield "events", [{"type": "ERROR", "object": refused.status}]
            return
        version = current
        if batch := [event for change in changes if (event := _event(asked, change))]:
            yield "events", batch
        now = time.monotonic()
        if bookmarks and (now >= next_bookmark or now >= deadline):
            next_bookmark = now + bookmark_seconds
            yield "events", [_bookmark(asked, version)]
        if now >= deadline:
            return
        if not batch:
            yield "", []


def _beginning(store: Store, asked: Asked) -> tuple[int, list[dict[str, Any]]]:
    """From which version on, and the events before: without a version (or with "0"), what exists now."""
    with store.lock:
        version = int(asked.query.get("resourceVersion") or 0)
        initial = asked.query.get("sendInitialEvents") == "true"
        if version and not initial:
            return version, []
        found = [obj for obj in store.all(asked.resource, asked.namespace) if asked.matches(obj)]
        first = [{"type": "ADDED", "object": asked.serialize(obj)} for obj in found]
        if initial:
            first.append(_bookmark(asked, store.version, {INITIAL_EVENTS_END: "true"}))
        return store.version, first


def _event(asked: Asked, change: Change) -> dict[str, Any] | None:
    """As the watcher sees it: an object that no longer fits the selector is DELETED to it."""
    before, after = asked.matches(change.old), change.type != "DELETED" and asked.matches(change.new)
    if not before and not after:
        return None
    if not after:
        return {"type": "DELETED", "object": asked.serialize(change.new)}
    return {"type": "MODIFIED" if before else "ADDED", "object": asked.serialize(change.new)}


def _bookmark(asked: Asked, version: int, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    meta: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
    about = {"kind": asked.resource.kind, "apiVersion": asked.resource.api_version(asked.version)}
    if asked.metadata_only:
        about = {"kind": "PartialObjectMetadata", "apiVersion": META_V1}
    meta |= {"annotations": annotations} if annotations else {}
    return {"type": "BOOKMARK", "object": about | {"metadata": meta}}
