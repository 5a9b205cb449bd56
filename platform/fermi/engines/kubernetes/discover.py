"""Discover dev environments of a Kubernetes cluster: pods and StatefulSets with the connection's label, in the
namespaces that the connection names, and their nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fermi.engines.discovery import DiscoveredEnvironment
from fermi.engines.kubernetes import environment_pods, names
from fermi.engines.kubernetes.client import KubernetesClient
from fermi.engines.kubernetes.inside import PodEnvironments
from fermi.engines.kubernetes.mirror import CollectionMirror
from fermi.engines.kubernetes.survey import EnvironmentSurveys
from fermi.jobs.errors import BackendError

Object = Mapping[str, Any]

DEFAULT_PROJECT = "default"
SETTLE_SECONDS = 0.1  # seconds in which changes are collected
POLL_SECONDS = 0.5  # seconds between two checks of `stop`
FIRST_SURVEY_SECONDS = 10.0
"""How long the first list waits until all environments were surveyed. Till then the stored facts stay: after a restart
of the platform no environment must count as not surveyed."""


def follow(connection: Mapping[str, Any], stop: threading.Event) -> Iterator[list[DiscoveredEnvironment]]:
    """Yield the environments; see `fermi.engines.base.DiscoveryModule`."""
    client, changed = KubernetesClient(connection), threading.Event()
    selector = connection.get("selector") or names.DEV_ENVIRONMENTS

    def mirror(kind: str, namespace: str, labels: str, *, optional: bool) -> CollectionMirror:
        path = client.path(kind, namespace=namespace)
        return CollectionMirror(client, path, changed.set, selector=labels, optional=optional)

    own = client.namespace
    shown = [mirror("Pod", one, selector, optional=one != own) for one in client.namespaces]
    sets = [mirror("StatefulSet", one, selector, optional=True) for one in client.namespaces]
    made = mirror("Pod", own, names.ENVIRONMENT_ID, optional=False)
    nodes = CollectionMirror(client, "/api/v1/nodes", changed.set, optional=True)
    mirrors = [*shown, *sets, made, nodes]
    devices, project = _ClaimDevices(client), connection.get("project") or DEFAULT_PROJECT
    surveys = EnvironmentSurveys(PodEnvironments(client), changed.set)
    python = str(connection.get("python") or "")
    last: list[DiscoveredEnvironment] | None = None
    until = 0.0
    try:
        while not stop.is_set():
            if not changed.wait(POLL_SECONDS) and not until and not surveys.has_due:
                continue
            stop.wait(SETTLE_SECONDS)
            changed.clear()
            if all(one.listed for one in mirrors):
                there = _merge_items(*shown)
                seen = _build_environments(
                    there, _merge_items(*sets), _merge_items(made), _merge_items(nodes), devices, project
                )
                ended = surveys.ended
                seen = [_add_survey(one, there.get(one.key), surveys, python) for one in seen]
                surveys.drop_other_pods({str(pod["metadata"]["uid"]) for pod in there.values()})
                if last is None and (surveys.busy or surveys.ended > ended):  # one may have ended after it was read
                    until = until or time.monotonic() + FIRST_SURVEY_SECONDS
                    if time.monotonic() < until:
                        continue
                until = 0.0
                if seen != last:
                    last = seen
                    yield seen
            elif error := next((m.error for m in mirrors if m.error and not m.listed), None):
                raise error
    finally:
        for one in mirrors:
            one.close()
        surveys.close()
        client.close()


def _merge_items(*mirrors: CollectionMirror) -> dict[str, Object]:
    return {key: item for one in mirrors for key, item in dict(one.items).items()}


def _add_survey(
    environment: DiscoveredEnvironment, pod: Object | None, surveys: EnvironmentSurveys, python: str
) -> DiscoveredEnvironment:
    """Return the environment with what a survey found inside of it."""
    wanted = str(environment.engine.get("python") or python)
    facts = surveys.find_survey(dict(pod), str(environment.engine["container"]), wanted) if pod else None
    return replace(environment, engine={**environment.engine, "inside": dict(facts)}) if facts else environment


def _build_environments(
    pods_by_key: Mapping[str, Object], sets: Mapping[str, Object], objects: Mapping[str, Object], nodes: Mapping[str,
    Object], devices: _ClaimDevices, project: str,
) -> list[DiscoveredEnvironment]:  # fmt: skip
    """Return the environments by key. A pod says more than the StatefulSet that it belongs to. `objects`: pods of
    environments that the platform makes: it knows them by itself, but they hold GPUs, too."""
    of_sets = (pod for one in sets.values() for pod in environment_pods.build_set_pods(one))
    known = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod for pod in of_sets} | dict(pods_by_key)
    own = {key for key, pod in known.items() if names.ENVIRONMENT_ID in (pod["metadata"].get("labels") or {})}
    held = environment_pods.count_held_gpus({**known, **objects}.values())
    found = (
        environment_pods.read_environment(known[key], nodes, devices, project) for key in sorted(known.keys() - own)
    )
    return [
        replace(one, engine=environment_pods.add_gpu_counts(one.engine, nodes.get(f"/{one.host}") or {}, held))
        for one in found
    ]


class _ClaimDevices:
    """Number of devices that a ResourceClaim has been given; it does not change while a pod has the claim, so one is
    asked once."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client
        self._version = ""
        self._known: dict[tuple[str, str], int] = {}

    def __call__(self, namespace: str, name: str) -> int:
        """Return the number; 0 while the claim has none or cannot be read."""
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
