"""One plan runs unchanged on every engine: each framework's, those that cannot be installed here too, is rendered."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from fermi.launch import registry, shipped
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
    ours = shipped.modules(shipped.POD, (word for node in plan.nodes for word in node.command)).values()
    assert not [text for text in _texts(rendered.to_json()) if "Late." in text and text not in ours]


def _texts(found: Any) -> Iterator[str]:
    """All that is not a container; what JSON has no word for as Python prints it."""
    if isinstance(found, Mapping):
        yield from (text for pair in found.items() for part in pair for text in _texts(part))
    elif isinstance(found, list | tuple):
        yield from (text for part in found for text in _texts(part))
    else:
        yield str(found)
