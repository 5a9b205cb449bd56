"""Check whether the platform can enter dev environments: one running environment of each namespace is entered, all at a
time."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fermi.engines.check_results import CheckLevel, CheckResult
from fermi.engines.discovery import DiscoveredEnvironment
from fermi.engines.kubernetes import environment_pods, names
from fermi.engines.kubernetes.client import KubernetesApiError, KubernetesClient
from fermi.engines.kubernetes.gang import Object
from fermi.engines.kubernetes.inside import PodEnvironments
from fermi.engines.kubernetes.survey import EnvironmentSurveys, SurveyFacts

TIMEOUT_SECONDS = 20.0
"""Longest time for the check: the user waits for its answer."""


def check_entry(client: KubernetesClient, connection: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Yield whether an environment of each namespace can be entered. Raise KubernetesApiError where the API server does
    not answer."""
    running = [one for namespace in client.namespaces if (one := _find_running(client, connection, namespace))]
    if not running:
        yield CheckResult(CheckLevel.PASS, "INSIDE_UNTRIED", {"namespaces": ", ".join(client.namespaces)})
        return
    for environment, facts in _survey_environments(client, connection, running):
        if why := facts.get("why"):
            yield CheckResult(CheckLevel.WARN, str(why), {**(facts.get("params") or {}), "environment": environment})
        else:
            params = {"environment": environment, "python": facts["python"], "version": facts.get("version") or "–"}
            yield CheckResult(CheckLevel.PASS, "INSIDE_WORKS", params)


def _find_running(
    client: KubernetesClient, connection: Mapping[str, Any], namespace: str
) -> tuple[Object, DiscoveredEnvironment] | None:
    """Return a running environment of a namespace; None: there is none. Without permission to read pods, the missing
    permission has been reported already."""
    query = {"labelSelector": connection.get("selector") or names.DEV_ENVIRONMENTS}
    try:
        items = client.get(client.path("Pod", namespace=namespace), **query)["items"]
    except KubernetesApiError as refused:
        if refused.status != 403:
            raise
        return None
    seen = ((pod, environment_pods.read_environment(pod, {}, lambda *_: 0, "")) for pod in items)
    return next(((pod, one) for pod, one in seen if one.running), None)


def _survey_environments(
    client: KubernetesClient, connection: Mapping[str, Any], running: Sequence[tuple[Object, DiscoveredEnvironment]]
) -> Iterator[tuple[str, SurveyFacts]]:
    """Yield what was found in each, by its key."""
    news, until = threading.Event(), time.monotonic() + TIMEOUT_SECONDS
    surveys, known = EnvironmentSurveys(PodEnvironments(client), news.set), dict[str, SurveyFacts | None]()
    try:
        while True:
            news.clear()
            for pod, one in running:
                python = str(one.engine.get("python") or connection.get("python") or "")
                known[one.key] = surveys.find_survey(pod, str(one.engine["container"]), python)
            if all(known.values()) or not news.wait(until - time.monotonic()):
                break
    finally:
        surveys.close()
    silent = {"why": "INSIDE_SILENT", "params": {"why": f"no answer in {TIMEOUT_SECONDS:g} s"}}
    yield from ((key, facts or silent) for key, facts in known.items())
