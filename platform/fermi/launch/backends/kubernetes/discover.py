"""Dev environments of a Kubernetes cluster: its pods and StatefulSets with the connection's label, and their nodes."""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fermi.launch.backends.kubernetes import names, pods
from fermi.launch.backends.kubernetes.client import Client
from fermi.launch.backends.kubernetes.inside import Environments
from fermi.launch.backends.kubernetes.mirror import Mirror
from fermi.launch.backends.kubernetes.surveying import Surveys
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
    surveys = Surveys(Environments(client), changed.set)
    python = str(connection.get("python") or "")
    last: list[Found] | None = None
    try:
        while not stop.is_set():
            if not changed.wait(LOOK):
                continue
            stop.wait(SETTLE)
            changed.clear()
            if all(mirror.listed for mirror in mirrors):
                there = dict(mine.items)
                seen = _picture(there, sets, dict(nodes.items), devices, project)
                seen = [_looked_into(one, there.get(one.key), surveys, python) for one in seen]
                surveys.keep({str(pod["metadata"]["uid"]) for pod in there.values()})
                if seen != last:
                    last = seen
                    yield seen
            elif error := next((m.error for m in mirrors if m.error and not m.listed), None):
                raise error
    finally:
        for mirror in mirrors:
            mirror.close()
        surveys.close()
        client.close()


def _looked_into(one: Found, pod: Mapping[str, Any] | None, surveys: Surveys, python: str) -> Found:
    """With what was found inside of it."""
    wanted = str(one.engine.get("python") or python)
    facts = surveys.of(dict(pod), str(one.engine["container"]), wanted) if pod and one.running else None
    return replace(one, engine={**one.engine, "inside": dict(facts)}) if facts else one


def _picture(
    mine: Mapping[str, Mapping[str, Any]],
    sets: Mirror,
    nodes: Mapping[str, Mapping[str, Any]],
    devices: "_Devices",
    project: str,
) -> list[Found]:
    """By key. A pod says more than the StatefulSet that it belongs to. What the platform made itself it knows."""
    made = [pod for one in list(sets.items.values()) for pod in pods.of_set(one)]
    known: dict[str, Mapping[str, Any]] = {
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod for pod in made
    }
    known.update(mine)
    own = {key for key, pod in known.items() if names.HOSTED in (pod["metadata"].get("labels") or {})}
    found = [pods.found(known[key], nodes, devices, project) for key in sorted(known.keys() - own)]
    held = Counter[tuple[str, str]]()
    for pod in known.values():
        held.update(pods.gpus_held(pod))
    return [_with_gpus(one, nodes, held) for one in found]


def _with_gpus(one: Found, nodes: Mapping[str, Mapping[str, Any]], held: Mapping[tuple[str, str], int]) -> Found:
    """With how many GPUs a device plugin offers on its node, and how many dev environments hold there."""
    resource = str(one.engine.get("resource") or "")
    amounts = ((nodes.get(f"/{one.host}") or {}).get("status") or {}).get("allocatable") or {}
    if not resource or resource not in amounts:
        return one
    gpus = {"there": int(pods.quantity(amounts[resource])), "held": held.get((one.host, resource), 0)}
    return replace(one, engine={**one.engine, "gpus": gpus})


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
