"""Copy of a collection of the API server that is kept up to date: listed once, then watched from there on."""

import json
import logging
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fermi.engines.kubernetes.client import KubernetesApiError, KubernetesClient, ResponseStream, build_api_error
from fermi.jobs.errors import BackendError

log = logging.getLogger(__name__)

WATCH_SECONDS = 300  # after which the server ends a watch; the next continues
TIMEOUT_MARGIN_SECONDS = 20.0  # seconds beyond that until a silent connection counts as broken
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 30.0  # seconds after a failure, doubling
FORBIDDEN_PAUSE_SECONDS = 300.0  # seconds until a forbidden list is tried again

HTTP_GONE = 410


class CollectionMirror:
    """Copy of a collection. `items` by `namespace/name`, replaced and changed by a thread of its own, which calls
    `on_change` after each change. `listed`: they are what the server has, or had when it was last reached. An
    `optional` one that may not be read stays empty."""

    def __init__(
        self,
        client: KubernetesClient,
        path: str,
        on_change: Callable[[], None],
        *,
        selector: str = "",
        optional: bool = False,
    ) -> None:
        self.items: dict[str, Mapping[str, Any]] = {}
        self.listed = False
        self.error: BackendError | None = None
        self._client, self._path, self._on_change, self._optional = client, path, on_change, optional
        self._query = {"labelSelector": selector} if selector else {}
        self._closed = threading.Event()
        self._stream: ResponseStream | None = None
        threading.Thread(target=self._run, name=f"mirror {path}", daemon=True).start()

    def close(self) -> None:
        """End the thread, which may hang in a read."""
        self._closed.set()
        if self._stream:
            self._stream.close()

    def _run(self) -> None:
        pause, version = MIN_PAUSE_SECONDS, ""
        while not self._closed.is_set():
            wait = 0.0
            try:
                if not version:
                    version = self._list()
                for reached in self._watch(version):
                    version, pause = reached, MIN_PAUSE_SECONDS
                wait = MIN_PAUSE_SECONDS  # the server ended it, as it does now and then
            except BackendError as error:
                status = error.status if isinstance(error, KubernetesApiError) else 0
                wait, pause = pause, min(pause * 2, MAX_PAUSE_SECONDS)
                if status:  # there was an answer: what was listed may be out of date
                    version = ""
                if status == HTTP_GONE:
                    wait = random.uniform(0, MIN_PAUSE_SECONDS)  # all mirrors get it at the same time
                elif status == 403 and error.permanent and self._optional:
                    wait, self.items, self.listed = FORBIDDEN_PAUSE_SECONDS, {}, True
                    self._on_change()
                else:
                    self._complain(error)
            self._closed.wait(wait)

    def _complain(self, error: BackendError) -> None:
        if not self._closed.is_set():
            log.warning("%s: %s", self._path, error)
            self.error = error
            self._on_change()

    def _list(self) -> str:
        answer = self._client.get(self._path, **self._query)
        self.items = {_build_key(item): item for item in answer["items"]}
        self.listed, self.error = True, None
        self._on_change()
        version: str = answer["metadata"]["resourceVersion"]
        return version

    def _watch(self, version: str) -> Iterator[str]:
        """Yield the version after each event, until the server ends the watch or the connection breaks. Raise
        KubernetesApiError (410) when the server no longer knows what came after `version`."""
        query = {
            **self._query, "watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }  # fmt: skip
        self._stream = self._client.stream(self._path, query=query, timeout=WATCH_SECONDS + TIMEOUT_MARGIN_SECONDS)
        if self._closed.is_set():
            self._stream.close()
        for lines in self._stream.batches():
            for line in filter(bytes.strip, lines):
                yield self._apply(json.loads(line))

    def _apply(self, event: Mapping[str, Any]) -> str:
        item = event["object"]
        if event["type"] == "ERROR":
            raise build_api_error(int(item.get("code", 0)), str(item.get("reason", "")), str(item.get("message", "")))
        if event["type"] == "DELETED":
            self.items.pop(_build_key(item), None)
        elif event["type"] != "BOOKMARK":
            self.items[_build_key(item)] = item
        if event["type"] != "BOOKMARK":
            self._on_change()
        version: str = item["metadata"]["resourceVersion"]
        return version


def _build_key(item: Mapping[str, Any]) -> str:
    return f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}"
