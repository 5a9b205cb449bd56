"""The objects, their versions, and what happened to them: etcd and the watch cache in one."""

import bisect
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from tests.fakes.kubernetes.errors import too_old
from tests.fakes.kubernetes.resources import Resource

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace ("" for what is of the cluster) and name."""


def copy(obj: Object) -> Object:
    return orjson.loads(orjson.dumps(obj))


@dataclass(frozen=True)
class Change:
    """`type` as in watch events. Of a DELETED one, `new` is the last state with the deletion's version."""

    version: int
    type: str
    resource: Resource
    old: Object | None
    new: Object

    @property
    def key(self) -> Key:
        return key(self.new)


def key(obj: Object) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


class Store:
    """Stored objects are never changed in place, so readers need no copy. All methods may be called under `lock`."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.version = 1000
        self._objects: dict[Resource, dict[Key, Object]] = {}
        self._history: dict[Resource, list[Change]] = {}
        self._forgotten: dict[Resource, int] = {}
        self.journal: list[Change] = []
        """Every change; what controllers read."""
        self.added: Counter[tuple[str, str, str]] = Counter()
        """How often an object of this kind, namespace and name came to be."""

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        with self.lock:
            return self._objects.get(resource, {}).get((namespace if resource.namespaced else "", name))

    def all(self, resource: Resource, namespace: str = "") -> list[Object]:
        """Sorted by namespace and name, as etcd has them."""
        with self.lock:
            found = self._objects.get(resource, {})
            return [found[key] for key in sorted(found) if not namespace or key[0] == namespace]

    def put(self, resource: Resource, obj: Object) -> Object:
        """Stores `obj`, whose resource version it sets."""
        with self.lock:
            old = self._objects.setdefault(resource, {}).get(key(obj))
            self._record("MODIFIED" if old else "ADDED", resource, old, obj)
            self._objects[resource][key(obj)] = obj
            return obj

    def remove(self, resource: Resource, obj: Object) -> Object:
        with self.lock:
            old = self._objects[resource].pop(key(obj))
            gone = obj | {"metadata": dict(obj["metadata"])}
            self._record("DELETED", resource, old, gone)
            return gone

    def _record(self, kind: str, resource: Resource, old: Object | None, new: Object) -> None:
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        change = Change(self.version, kind, resource, old, new)
        self._history.setdefault(resource, []).append(change)
        self.journal.append(change)
        if kind == "ADDED":
            self.added[resource.plural, *change.key] += 1
        self.changed.notify_all()

    def since(self, resource: Resource, version: int) -> list[Change]:
        """What happened after `version`, in order. Raises 410 when that is no longer known."""
        with self.lock:
            if version < self._forgotten.get(resource, 0):
                raise too_old(version, self._forgotten[resource])
            history = self._history.get(resource, [])
            return history[bisect.bisect_right(history, version, key=lambda change: change.version) :]

    def at(self, resource: Resource, namespace: str, version: int) -> list[Object]:
        """As `all` was at `version`. Raises 410 when that is no longer known."""
        with self.lock:
            found = dict(self._objects.get(resource, {}))
            for change in reversed(self.since(resource, version)):
                if change.old is None:
                    found.pop(change.key, None)
                else:
                    found[change.key] = change.old
            return [found[key] for key in sorted(found) if not namespace or key[0] == namespace]

    def compact(self) -> None:
        """Forgets the past: whoever resumes a watch from before now is told 410 Gone."""
        with self.lock:
            self.version += 1  # so that a version handed out before is an older one
            for resource in self._objects:
                self._forgotten[resource] = self.version
            self._history.clear()

    def everything(self) -> Iterator[tuple[Resource, Object]]:
        with self.lock:
            found = [(resource, obj) for resource, objects in self._objects.items() for obj in objects.values()]
        return iter(found)
