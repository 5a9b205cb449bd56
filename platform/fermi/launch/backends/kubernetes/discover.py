"""Dev environments of a Kubernetes cluster: its pods and StatefulSets with the connection's label, and their nodes."""

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from fermi.launch.backends.kubernetes import names, pods
from fermi.launch.backends.kubernetes.client import Client
from fermi.launch.backends.kubernetes.mirror import Mirror
from fermi.launch.discovery import Found
from fermi.launch.errors import BackendError

PROJECT = "default"
SETTLE = 0.1  # seconds in which changes are gathered
LOOK = 0.5  # seconds between two looks at whether to stop


def follow(connection: Mapping[str, Any], stop: threading.Event) -> Iterator[list[Found]]:
    """See `fermi.launch.backends.base.Discovery`."""
    client, changed = Client(connection), threading.Event()
    selector = connection.get("selector") or names.DEV_ENVIRONMENTS
    mine = Mirror(client, client.path("Pod"), changed.set, selector=selector)
    sets = Mirror(client, f"/apis/apps/v1/namespaces/{client.namespace}/statefulsets", changed.set, selector=selector,
                  optional=True)  # fmt: skip
    nodes = Mirror(client, "/api/v1/nodes", changed.set, optional=True)
    mirrors = [mine, sets, nodes]
    devices, project = _Devices(client), connection.get("project") or PROJECT
    last: list[Found] | None = None
    try:
        while not stop.is_set():
            if not changed.wait(LOOK):
                continue
            stop.wait(SETTLE)
            changed.clear()
            if all(mirror.listed for mirror in mirrors):
                seen = _picture(mine, sets, dict(nodes.items), devices, project)
                if seen != last:
                    last = seen
                    yield seen
            elif error := next((m.error for m in mirrors if m.error and not m.listed), None):
                raise error
    finally:
        for mirror in mirrors:
            mirror.close()
        client.close()


def _picture(
    mine: Mirror, sets: Mirror, nodes: Mapping[str, Mapping[str, Any]], devices: "_Devices", project: str
) -> list[Found]:
    """By key. A pod says more than the StatefulSet that it belongs to. What the platform made itself it knows."""
    made = [pod for one in list(sets.items.values()) for pod in pods.of_set(one)]
    known: dict[str, Mapping[str, Any]] = {
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod for pod in made
    }
    known.update(mine.items)
    own = {key for key, pod in known.items() if names.HOSTED in (pod["metadata"].get("labels") or {})}
    return [pods.found(known[key], nodes, devices, project) for key in sorted(known.keys() - own)]


class _Devices:
    """How many devices a ResourceClaim has been given; that does not change while a pod has it, so one asks once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._version = ""
        self._known: dict[tuple[str, str], int] = {}

    def __call__(self, namespace: str, name: str) -> int:
        """0 while the claim has none or cannot be read."""
        key = namespace, name
        if not self._known.get(key):
            try:
                self._known[key] = self._ask(namespace, name)
            except BackendError:
                return 0
        return self._known[key]

    def _ask(self, namespace: str, name: str) -> int:
        if not self._version:
            self._version = self._client.get("/apis/resource.k8s.io")["preferredVersion"]["version"]
        path = f"/apis/resource.k8s.io/{self._version}/namespaces/{namespace}/resourceclaims/{name}"
        allocation = self._client.get(path).get("status", {}).get("allocation") or {}
        return len(allocation.get("devices", {}).get("results") or [])
