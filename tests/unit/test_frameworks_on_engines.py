"""One plan runs unchanged on every engine: each framework's, those that cannot be installed here too, is rendered."""

import sys
from dataclasses import replace
from typing import Any

import pytest

from fermi.launch import registry
from tests import goldens

CONNECTIONS: dict[str, dict[str, Any]] = {
    "local": {"data_dir": "/fermi", "python": sys.executable},
    "kubernetes": {"data_dir": "/fermi", "data": {"volume": {"persistentVolumeClaim": {"claimName": "fermi-data"}}}},
    "slurm": {"folder": "/shared/fermi"},
    "agent": {"data_dir": "/fermi"},
}


@pytest.mark.parametrize("engine", registry.BACKENDS)
@pytest.mark.parametrize("framework", registry.FRAMEWORKS)
def test_every_frameworks_plan_is_rendered_for_every_engine(framework: str, engine: str) -> None:
    spec = goldens.job("env-001", "env-003", framework=framework)
    if engine == "slurm":
        spec = goldens.pinned(spec)
    nodes = (replace(node, image="training:1") for node in spec.nodes)
    spec = replace(spec, nodes=tuple(nodes))
    plan = registry.framework(framework).plan(spec)
    rendered = registry.backend(engine, CONNECTIONS[engine]).render(spec, plan)
    assert rendered.artifacts
    assert "Late." not in str(rendered.to_json())
