"""No pod that runs somebody's code has a service account's token, whoever makes it and whatever its environment."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml

from fermi import export
from fermi.engines.kubernetes import environment_pods, probe
from fermi.planning import plugins
from tests.unit.engines.kubernetes.test_render import CONNECTIONS, DATA, document_job

TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"


def pod_specs(content: Any) -> Iterator[Mapping[str, Any]]:
    """Wherever they are: in pods, Jobs, a JobSet's templates."""
    if isinstance(content, Mapping):
        if "containers" in content:
            yield content
        for inner in content.values():
            yield from pod_specs(inner)
    elif isinstance(content, list):
        for inner in content:
            yield from pod_specs(inner)


def holds(content: Any, count: int) -> None:
    found = list(pod_specs(content))
    assert len(found) == count
    for spec in found:
        assert spec["automountServiceAccountToken"] is False
        mounts = [mount for one in spec["containers"] for mount in one.get("volumeMounts", ())]
        assert not [mount for mount in mounts if mount["mountPath"].startswith(TOKENS)]
        assert "serviceAccountToken" not in str(spec.get("volumes"))


def sent(planner: str, connection: Mapping[str, Any]) -> list[Any]:
    spec = replace(document_job(), framework=planner)
    plan = plugins.get_planner(planner).plan(spec)
    backend = plugins.get_backend(
        "kubernetes", {"data_dir": "/fermi", "namespace": "research", "data": DATA, **connection}
    )
    return [artifact.content for artifact in backend.render(spec, plan).artifacts]


@pytest.mark.parametrize("connection", CONNECTIONS)
@pytest.mark.parametrize("planner", ["pytorch-ddp", "deepspeed", "jax", "preflight"])
def test_attempt_and_preflight_pods_have_no_token(planner: str, connection: str) -> None:
    holds(sent(planner, CONNECTIONS[connection]), 3)


@pytest.mark.parametrize("target", export.TARGETS)
def test_exported_pods_have_no_token(target: str) -> None:
    files = export.render_files(replace(document_job(), attempt=1), target, "en", {})
    manifests = [yaml.safe_load(text) for name, text in files.items() if name.startswith("manifests/")]
    assert bool(manifests) == (target == "kubernetes"), "a target that writes pods too is to be looked at here"
    if manifests:
        holds(manifests, 3)


def test_the_volume_probe_pod_has_no_token() -> None:
    dev = {"spec": {"containers": [{"name": "dev", "image": "training:1"}], "serviceAccountName": "research"}}
    connection = {"data_dir": "/fermi", "data": DATA}
    holds(
        probe._build_job(
            "fermi-probe-1", "research", probe._build_pod(connection, dev, "workspace/x", "checkpoints/x", "w")
        ),
        1,
    )


def test_a_dev_pods_token_is_not_taken_over() -> None:
    """As the admission plug-in ServiceAccount adds it to each pod (kubernetes, plugin/pkg/admission/serviceaccount)."""
    container = {
        "name": "dev", "image": "training:1", "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "volumeMounts": [{"name": "kube-api-access-x7k2p", "mountPath": TOKENS, "readOnly": True},
                         {"name": "home", "mountPath": "/home/ada"}],
    }  # fmt: skip
    token = {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    spec = {
        "containers": [container], "nodeName": "gpu-1", "serviceAccountName": "research",
        "volumes": [{"name": "kube-api-access-x7k2p", "projected": {"sources": [token]}},
                    {"name": "home", "emptyDir": {}}],
    }  # fmt: skip
    engine = environment_pods._build_engine(
        spec, container, {"name": "dev", "namespace": "research"}, "nvidia.com/gpu", [], {}
    )
    assert [mount["mountPath"] for mount in engine["volumeMounts"]] == ["/home/ada"]
    assert "serviceAccountToken" not in str(engine)
