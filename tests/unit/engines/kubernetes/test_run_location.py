"""Where ranks of an environment's node can run: inside of its pod, in a pod beside it, or neither."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from fermi.engines.kubernetes.engine import KubernetesBackend
from fermi.jobs import run_location
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import JobSpec, Node
from tests.fakes.kubernetes import FakeCluster

POD = {"pod": "dev", "container": "main", "node": "machine-a", "resource": "nvidia.com/gpu"}
ENTERED = {"python": "/usr/bin/python3"}
FULL = {"there": 8, "held": 8}


@pytest.fixture
def backend(kubernetes: FakeCluster) -> Iterator[KubernetesBackend]:
    made = KubernetesBackend({
        "kubeconfig": str(kubernetes.kubeconfig), "namespace": kubernetes.namespace,
        "environmentNamespaces": ["notebooks"],
    })  # fmt: skip
    yield made
    made.close()


def settled(backend: KubernetesBackend, run_in: Any = "auto", **engine: Any) -> tuple[bool, str, list[str]]:
    """Whether ranks run inside, why, and what is wrong."""
    node = Node("env-a", "dev-a", host="machine-a", gpu_type="A100", gpu_count=4, image="i", engine={**POD, **engine})
    job = JobSpec("task-x", "ddp", (node,), "env-a", attempt=1, run_in=run_in)
    job, wrong = run_location.choose_run_locations(job, backend.find_run_locations(job))
    way = job.nodes[0].way
    assert way
    return way.inside, way.code, [one.code for one in wrong]


@pytest.mark.parametrize(("engine", "inside", "why"), [
    ({"inside": ENTERED, "gpus": {"there": 8, "held": 4}}, True, "WAY_INSIDE_GPUS"),
    ({"inside": ENTERED, "gpus": FULL}, True, "BESIDE_GPUS_HELD"),
    ({"inside": ENTERED, "namespace": "notebooks"}, True, "BESIDE_OTHER_NAMESPACE"),
    ({"inside": ENTERED, "resource": "", "resourceClaims": ["four"]}, False, "WAY_BESIDE_CLAIM"),
    ({"inside": {"why": "INSIDE_NO_PYTHON"}, "gpus": {"there": 8, "held": 4}}, False, "INSIDE_NO_PYTHON"),
    ({"inside": {"why": "INSIDE_FORBIDDEN"}}, False, "INSIDE_FORBIDDEN"),
    ({}, False, "INSIDE_NOT_LOOKED_AT"),
])  # fmt: skip
def test_the_only_possible_run_location_is_used_with_its_reason(
    backend: KubernetesBackend, engine: dict[str, Any], inside: bool, why: str
) -> None:
    assert settled(backend, **engine) == (inside, why, [])


@pytest.mark.parametrize(("engine", "why"), [
    ({"inside": {"why": "INSIDE_NO_PYTHON"}, "gpus": FULL}, ["INSIDE_NO_PYTHON", "BESIDE_GPUS_HELD"]),
    ({"inside": ENTERED, "namespace": "private"}, ["INSIDE_OTHER_NAMESPACE", "BESIDE_OTHER_NAMESPACE"]),
])  # fmt: skip
def test_without_any_possible_run_location_both_reasons_are_given(
    backend: KubernetesBackend, engine: dict[str, Any], why: list[str]
) -> None:
    assert settled(backend, **engine)[2] == why


@pytest.mark.parametrize(("run_in", "engine", "why"), [
    ("environment", {"inside": ENTERED, "namespace": "private"}, ["INSIDE_OTHER_NAMESPACE"]),
    ("environment", {}, ["INSIDE_NOT_LOOKED_AT"]),
    ("beside", {"inside": ENTERED, "gpus": {"there": 8, "held": 6}}, ["BESIDE_GPUS_HELD"]),
    ("beside", {"inside": ENTERED, "gpus": {"there": 8, "held": 4}}, []),
])  # fmt: skip
def test_an_impossible_requested_run_location_is_refused(
    backend: KubernetesBackend, run_in: str, engine: dict[str, Any], why: list[str]
) -> None:
    assert settled(backend, run_in, **engine)[2] == why


def test_an_unconfigured_namespace_is_never_surveyed(kubernetes: FakeCluster, backend: KubernetesBackend) -> None:
    """Also where an environment that was registered by hand says so."""
    kubernetes.add_namespace("private")
    kubernetes.add_node("machine-a")
    kubernetes.add_dev_pod("dev", "machine-a", namespace="private")
    node = Node("env-a", "dev-a", engine={**POD, "namespace": "private", "inside": ENTERED})
    with pytest.raises(BackendError) as refused:
        backend.enter(node)
    assert (refused.value.code, refused.value.permanent) == ("INSIDE_OTHER_NAMESPACE", True)
    assert refused.value.params["found"] == "private"
    assert not [call for call in kubernetes.calls(user_agent="fermi") if call.namespace == "private"]
    with pytest.raises(BackendError) as away:
        backend.enter(replace(node, engine={**node.engine, "namespace": "notebooks"}))
    assert away.value.code != "INSIDE_OTHER_NAMESPACE"
