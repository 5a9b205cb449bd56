"""Cache of our objects in a cluster: one list and one watch per kind and process, shared by all tasks.

    list (pages) ─▶ watch from its resourceVersion ─▶ … connection ends ─▶ watch from the last version seen
          ▲                                                │
          └──────────── 410 Gone: that version is forgotten (after a random pause) ◀──┘

A cache that is not used for a while (the cluster was deleted, or is reached in a new way) is given up, and started
again when it is used.

The cache may be a moment behind. So it is trusted about what exists, and never about what does not: before concluding
from absence the API server is asked (see `deletion.AttemptDeleter.is_confirmed_gone`).
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import queue
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from fermi.engines.kubernetes import names
from fermi.engines.kubernetes.causes import BLOCKING_EVENTS, NO_PRIORITY_CLASS
from fermi.engines.kubernetes.client import METADATA_ACCEPT, KubernetesApiError, KubernetesClient, ResponseStream
from fermi.engines.kubernetes.gang import Gang, Object
from fermi.jobs.errors import BackendError

log = logging.getLogger(__name__)

PAGE_SIZE = 500
WATCH_SECONDS = (240, 360)  # then the server ends it and another begins; a random length spreads them
SILENCE_SECONDS = 420.0
BACKOFF_SECONDS = (0.1, 1.5)
MAX_DOWN_SECONDS = 15.0
"""How long the connection may be down before the cached state counts as unknown."""
FIRST_LIST_SECONDS = 0.5
"""How long the first list is waited for while the cluster does not answer."""
IDLE_SECONDS = 300.0
"""Without use for so long, watching ends."""
KEPT_EVENT_REASONS = frozenset(
    {"FailedCreate", "Failed", "BackOff", "ErrImagePull", NO_PRIORITY_CLASS, *BLOCKING_EVENTS}
)
GONE_CACHE_SECONDS = 600.0


_version_counter = itertools.count(1)  # shared by all caches, so that a new one never reuses a version of an old one


class ObjectCache:
    """Objects by attempt."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gangs: dict[str, Gang] = {}
        self._versions: dict[str, int] = {}
        self._owners: dict[str, tuple[str, str]] = {}  # uid of an object of ours -> (attempt, name)
        self._events: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)  # uid -> reason -> event

    def version(self, attempt: str) -> int:
        """Return a number that changes when something of the attempt changes."""
        return self._versions.get(attempt, 0)

    def _changed(self, attempt: str) -> str:
        self._versions[attempt] = next(_version_counter)
        return attempt

    def names(self) -> list[str]:
        """Return the names of all attempts."""
        with self._lock:
            return list(self._gangs)

    def has(self, attempt: str) -> bool:
        """Return whether anything of an attempt is in the cluster."""
        with self._lock:
            return attempt in self._gangs and not self._gangs[attempt].is_empty()

    def gang(self, attempt: str) -> Gang:
        """Return a copy of an attempt's objects."""
        with self._lock:
            found = self._gangs.get(attempt)
            if found is None:
                return Gang(attempt)
            uids = [uid for uid in found.uids() if uid in self._events]
            return found.copy({uid: dict(self._events[uid]) for uid in uids})

    def find(self, attempt: str, kind: str, name: str) -> Object | None:
        """Return an object of an attempt; None where there is none."""
        with self._lock:
            found = self._gangs.get(attempt)
            return found.find(kind, name) if found else None

    def wrote(self, kind: str, obj: dict[str, Any]) -> None:
        """Store an object that this process has just written; the watch brings the same object again."""
        self.put(kind, _strip_object(obj, kind))

    def put(self, kind: str, obj: dict[str, Any]) -> str | None:
        """Store an object; return the attempt that it changed, None: none."""
        with self._lock:
            if kind == "Event":
                uid = (obj.get("involvedObject") or {}).get("uid", "")
                if obj.get("reason") in KEPT_EVENT_REASONS and uid:
                    self._events[uid][obj["reason"]] = obj
                about, _ = self._owners.get(uid, (None, ""))
                return self._changed(about) if about else None
            attempt = self._attempt(kind, obj)
            if attempt is None:
                return None
            gang = self._gangs.setdefault(attempt, Gang(attempt))
            self._owners[obj["metadata"]["uid"]] = (attempt, obj["metadata"]["name"])
            return self._changed(attempt) if gang.put(kind, obj) else None

    def drop(self, kind: str, obj: dict[str, Any]) -> str | None:
        """Remove an object; return the attempt that it changed, None: none."""
        with self._lock:
            meta = obj["metadata"]
            if kind == "Event":
                self._events.pop((obj.get("involvedObject") or {}).get("uid", ""), None)
                return None
            attempt, _ = self._owners.pop(meta["uid"], (None, ""))
            self._events.pop(meta["uid"], None)
            if attempt is None or attempt not in self._gangs:
                return None
            gang = self._gangs[attempt]
            gang.drop(kind, obj)
            if gang.is_empty() and gang.idle_seconds() > GONE_CACHE_SECONDS:
                del self._gangs[attempt]
            return self._changed(attempt)

    def replace(self, kind: str, objects: Iterable[dict[str, Any]]) -> set[str]:
        """Replace all objects of a kind after a list; return the attempts that changed."""
        objects = list(objects)
        listed = {obj["metadata"]["uid"] for obj in objects}
        changed = {self.put(kind, obj) for obj in objects}
        if kind != "Event":
            with self._lock:
                gone = [obj for gang in self._gangs.values() for obj in gang.list_objects(kind)
                        if obj["metadata"]["uid"] not in listed]  # fmt: skip
            changed |= {self.drop(kind, obj) for obj in gone}
        self._tidy()
        return {name for name in changed if name}

    def _attempt(self, kind: str, obj: dict[str, Any]) -> str | None:
        if kind == "Workload":  # Kueue's, for a Job or JobSet of ours
            owners = obj["metadata"].get("ownerReferences") or ()
            return next((self._owners[o["uid"]][0] for o in owners if o["uid"] in self._owners), None) or next(
                (names.strip_node_suffix(o["name"]) for o in owners if o.get("kind") in ("Job", "JobSet")), None
            )
        return names.get_attempt(obj)

    def _tidy(self) -> None:
        with self._lock:
            for name in [n for n, g in self._gangs.items() if g.is_empty() and g.idle_seconds() > GONE_CACHE_SECONDS]:
                del self._gangs[name]
                self._versions.pop(name, None)


class KindWatcher:
    """Thread that watches one kind."""

    def __init__(
        self, client: KubernetesClient, kind: str, memory: ObjectCache, changed: Callable[[set[str]], None],
        is_wanted: Callable[[], bool], **selectors: str,
    ) -> None:  # fmt: skip
        """Start the thread. `is_wanted`: called now and then; the thread ends when it returns False."""
        self.kind, self._wanted = kind, is_wanted
        self._client, self._memory, self._changed, self._selectors = client, memory, changed, selectors
        self._stream: ResponseStream | None = None
        self._stopped = threading.Event()
        self.synced = threading.Event()
        self.error: BackendError | None = None
        self.down_since: float | None = time.monotonic()
        self._failures = 0
        threading.Thread(target=self._run, name=f"watch-{kind}", daemon=True).start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        if stream := self._stream:
            stream.close()

    def _run(self) -> None:
        version, pause = "", BACKOFF_SECONDS[0]
        while not self._stopped.is_set() and self._wanted():
            began = time.monotonic()
            try:
                if not version:
                    version = self._list()
                    self.synced.set()
                    self._is_up()
                for seen in self._watch(version):
                    version, pause = seen, BACKOFF_SECONDS[0]
                    self._is_up()
                    if not self._wanted():
                        break
                continue  # the server ended it, as it does every few minutes
            except BackendError as error:
                if isinstance(error, KubernetesApiError) and (error.status == 410 or error.reason == "Expired"):
                    version = ""
                self._failed(error)
            except Exception as error:
                version = ""
                log.exception("watching %ss failed; they are listed anew", self.kind)
                self._failed(BackendError("ENGINE_UNREACHABLE", why=str(error)))
            if time.monotonic() - began > 10:
                pause = BACKOFF_SECONDS[0]
            self._stopped.wait(pause * random.uniform(0.5, 1.5))
            pause = min(pause * 2, BACKOFF_SECONDS[1])

    def _is_up(self) -> None:
        self.error = self.down_since = None
        self._failures = 0

    def _failed(self, error: BackendError) -> None:
        """Record a failure. Connections end now and then, which is normal; an outage is one line of the log, however
        long it lasts."""
        self._failures += 1
        if self._failures == 2 and not self._stopped.is_set():
            log.warning("%s: %ss cannot be watched: %s", self._client.namespace, self.kind, error)
        self.error = error
        if self.down_since is None:
            self.down_since = time.monotonic()

    def _accept(self, kind: str) -> str:
        return METADATA_ACCEPT.format(list=kind) if self.kind == "ConfigMap" else "application/json"

    def _list(self) -> str:
        found: list[dict[str, Any]] = []
        following = ""
        while True:
            query = {**self._selectors, "limit": PAGE_SIZE, **({"continue": following} if following else {})}
            page = self._client.request("GET", self._client.path(self.kind), query=query, accept=self._accept("List"))
            found += [_strip_object(item, self.kind) for item in page.get("items") or ()]
            following = page["metadata"].get("continue") or ""
            if not following:
                break
        self._tell(self._memory.replace(self.kind, found))
        return str(page["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> Iterable[str]:
        """Yield the version up to which everything has been seen."""
        query = {
            **self._selectors, "watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version,
            "timeoutSeconds": random.randint(*WATCH_SECONDS),
        }  # fmt: skip
        path = self._client.path(self.kind)
        self._stream = self._client.stream(path, query=query, timeout=SILENCE_SECONDS, accept=self._accept(""))
        if self._stopped.is_set():
            self._stream.close()
        yield version
        for lines in self._stream.batches():
            changed = set()
            for line in lines:
                if not line.strip():
                    continue
                event = json.loads(line)
                obj = event["object"]
                if event["type"] == "ERROR":
                    code, reason = int(obj.get("code") or 0), str(obj.get("reason") or "")
                    message = str(obj.get("message") or "")
                    raise KubernetesApiError("ENGINE_UNREACHABLE", code, reason, message, permanent=False)
                version = obj["metadata"]["resourceVersion"]
                if event["type"] == "DELETED":
                    changed.add(self._memory.drop(self.kind, _strip_object(obj, self.kind)))
                elif event["type"] != "BOOKMARK":
                    changed.add(self._memory.put(self.kind, _strip_object(obj, self.kind)))
            self._tell({name for name in changed if name})
            yield version

    def _tell(self, changed: set[str]) -> None:
        if changed:
            self._changed(changed)


class ClusterWatch:
    """Watches of all kinds of one cluster. Start with the first use in a process, and again in a process forked from
    it."""

    def __init__(self, client: KubernetesClient, *, jobset: bool, queue: bool) -> None:
        self.memory = ObjectCache()
        self._client = client
        self._kinds = ["ConfigMap", "Job", "Pod", "Event"]
        self._kinds += (["JobSet"] if jobset else []) + (["Workload"] if queue else [])
        self._lock = threading.Lock()
        self._follows: list[KindWatcher] = []
        self._pid = 0
        self._asked_at = 0.0
        self._listeners: list[NameQueue] = []

    def ready(self) -> ObjectCache:
        """Return the cache, once it is complete. Raise BackendError when the cluster has not answered for too long."""
        began = time.monotonic()
        for follow in self._started():
            patience = MAX_DOWN_SECONDS if follow.error is None else FIRST_LIST_SECONDS
            follow.synced.wait(max(0.0, began + patience - time.monotonic()))
            down = follow.down_since
            if not follow.synced.is_set() or (down is not None and time.monotonic() - down > MAX_DOWN_SECONDS):
                raise follow.error or BackendError("ENGINE_UNREACHABLE", why=f"no list of {follow.kind}s yet")
        return self.memory

    def listen(self) -> NameQueue:
        """Return a queue that gets the names of attempts that changed, until `leave`."""
        found: NameQueue = queue.SimpleQueue()
        self._listeners.append(found)
        return found

    def leave(self, listener: NameQueue) -> None:
        """Remove a queue."""
        self._listeners.remove(listener)

    def stop(self) -> None:
        """End all threads until the cache is used again."""
        with self._lock:
            for follow in self._follows:
                follow.stop()
            self._follows, self._pid = [], 0

    def _is_wanted(self) -> bool:
        if time.monotonic() - self._asked_at < IDLE_SECONDS:
            return True
        self.stop()
        return False

    def _started(self) -> list[KindWatcher]:
        with self._lock:
            self._asked_at = time.monotonic()
            if self._pid != os.getpid():
                self._pid, self.memory = os.getpid(), ObjectCache()
                self._follows = [self._follow(kind) for kind in self._kinds]
            return self._follows

    def _follow(self, kind: str) -> KindWatcher:
        selectors = {"labelSelector": names.SELECTOR}
        if kind == "Event":
            selectors = {"fieldSelector": "type=Warning"}
        elif kind == "Workload":
            selectors = {}
        return KindWatcher(self._client, kind, self.memory, self._changed, self._is_wanted, **selectors)

    def _changed(self, attempts: set[str]) -> None:
        for listener in list(self._listeners):
            for attempt in attempts:
                listener.put(attempt)


NameQueue = queue.SimpleQueue[str]


def _strip_object(obj: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the object without what is large and not used here, and with its kind, which the items of a list lack."""
    obj["kind"] = kind
    obj.pop("data", None)
    obj.pop("binaryData", None)
    obj["metadata"].pop("managedFields", None)
    return obj
