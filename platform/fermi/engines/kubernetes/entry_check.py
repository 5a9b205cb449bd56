"""Check whether the platform can enter dev environments: one running environment of each namespace is entered, all at a
time."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fermi.engines.check_results import Finding, Level
from fermi.engines.discovery import Found
from fermi.engines.kubernetes import names, pods
from fermi.engines.kubernetes.client import Client, Refused
from fermi.engines.kubernetes.gang import Object
from fermi.engines.kubernetes.inside import Environments
from fermi.engines.kubernetes.survey import Facts, Surveys

PATIENCE_SECONDS = 20.0
"""Longest time for the check: the user waits for its answer."""


def findings(client: Client, connection: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield whether an environment of each namespace can be entered. Raise KubernetesApiError where the API server does
    not answer."""
    running = [one for namespace in client.namespaces if (one := _running(client, connection, namespace))]
    if not running:
        yield Finding(Level.PASS, "INSIDE_UNTRIED", {"namespaces": ", ".join(client.namespaces)})
        return
    for environment, facts in _entered(client, connection, running):
        if why := facts.get("why"):
            yield Finding(Level.WARN, str(why), {**(facts.get("params") or {}), "environment": environment})
        else:
            params = {"environment": environment, "python": facts["python"], "version": facts.get("version") or "–"}
            yield Finding(Level.PASS, "INSIDE_WORKS", params)


def _running(client: Client, connection: Mapping[str, Any], namespace: str) -> tuple[Object, Found] | None:
    """Return a running environment of a namespace; None: there is none. Without permission to read pods, the missing
    permission has been reported already."""
    query = {"labelSelector": connection.get("selector") or names.DEV_ENVIRONMENTS}
    try:
        items = client.get(client.path("Pod", namespace=namespace), **query)["items"]
    except Refused as refused:
        if refused.status != 403:
            raise
        return None
    seen = ((pod, pods.found(pod, {}, lambda *_: 0, "")) for pod in items)
    return next(((pod, one) for pod, one in seen if one.running), None)


def _entered(
    client: Client, connection: Mapping[str, Any], running: Sequence[tuple[Object, Found]]
) -> Iterator[tuple[str, Facts]]:
    """Yield what was found in each, by its key."""
    news, until = threading.Event(), time.monotonic() + PATIENCE_SECONDS
    surveys, known = Surveys(Environments(client), news.set), dict[str, Facts | None]()
    try:
        while True:
            news.clear()
            for pod, one in running:
                python = str(one.engine.get("python") or connection.get("python") or "")
                known[one.key] = surveys.of(pod, str(one.engine["container"]), python)
            if all(known.values()) or not news.wait(until - time.monotonic()):
                break
    finally:
        surveys.close()
    silent = {"why": "INSIDE_SILENT", "params": {"why": f"no answer in {PATIENCE_SECONDS:g} s"}}
    yield from ((key, facts or silent) for key, facts in known.items())
