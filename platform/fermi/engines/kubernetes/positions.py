"""Position of an attempt in its LocalQueue, from Kueue's visibility API: `pendingworkloads`, which Kueue serves by
itself from 0.9 on (kubernetes-sigs/kueue: pkg/visibility/storage/pending_workloads_lq.go). It cannot be watched, so a
LocalQueue is read now and then, for all of its attempts at once."""

import time
from collections.abc import Iterable, Iterator

from fermi.engines.kubernetes.client import KubernetesApiError, KubernetesClient
from fermi.jobs.errors import BackendError

API_GROUP = "visibility.kueue.x-k8s.io"
API_VERSIONS = ("v1beta2", "v1beta1")
"""Kueue 0.15 serves both; those before it only the older one."""
CACHE_SECONDS = 15.0
UNAVAILABLE_SECONDS = 300.0
"""For so long a cluster that does not serve it, or does not let us read it, is not asked again."""
TIMEOUT_SECONDS = 5.0
PAGE_SIZE = 1000
"""Kueue's own default; workloads after MAX_POSITIONS have no number."""
MAX_POSITIONS = 4000


class QueuePositions:
    """Positions in LocalQueues, from 1, by the name of a Workload."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client
        self._known: dict[str, tuple[float, dict[str, int]]] = {}  # LocalQueue -> (valid until, positions)
        self._version = ""

    def find_position(self, queue: str, workloads: Iterable[str]) -> int | None:
        """Return the best position of these workloads; None: not known. Never raises: an unknown position must not
        prevent an observation."""
        until, found = self._known.get(queue, (0.0, {}))
        if time.monotonic() >= until:
            self._known[queue] = (
                time.monotonic() + CACHE_SECONDS,
                found,
            )  # other threads use the old positions meanwhile
            seconds, found = self._ask(queue)
            self._known[queue] = (time.monotonic() + seconds, found)
        return min((found[name] for name in workloads if name in found), default=None)

    def _ask(self, queue: str) -> tuple[float, dict[str, int]]:
        """Return for how many seconds the positions are used, and the positions."""
        for version in [self._version] if self._version else API_VERSIONS:
            try:
                found = dict(self._read(queue, version))
            except KubernetesApiError as refused:
                if refused.status == 404:  # another version, or no such queue
                    continue
                return UNAVAILABLE_SECONDS if refused.status == 403 else CACHE_SECONDS, {}
            except BackendError:
                return CACHE_SECONDS, {}
            self._version = version
            return CACHE_SECONDS, found
        self._version = ""
        return UNAVAILABLE_SECONDS, {}

    def _read(self, queue: str, version: str) -> Iterator[tuple[str, int]]:
        """Yield workloads with their positions from 1; Kueue counts from 0."""
        path = f"/apis/{API_GROUP}/{version}/namespaces/{self._client.namespace}/localqueues/{queue}/pendingworkloads"
        for offset in range(0, MAX_POSITIONS, PAGE_SIZE):
            query = {"limit": PAGE_SIZE, "offset": offset}
            items = self._client.request("GET", path, query=query, timeout=TIMEOUT_SECONDS).get("items") or []
            for item in items:
                yield item["metadata"]["name"], int(item.get("positionInLocalQueue") or 0) + 1
            if len(items) < PAGE_SIZE:
                return
