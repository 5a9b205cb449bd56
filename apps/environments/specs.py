"""Conversion of specs between the database and engines."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import orjson

from fermi.engines.environments import HostedSpec, Port

_KNOWN = {one.name for one in fields(HostedSpec)}


def stored(spec: HostedSpec) -> dict[str, Any]:
    """Return the spec as it is stored, without its run."""
    found: dict[str, Any] = orjson.loads(orjson.dumps(asdict(replace(spec, run=0))))
    return found


def load(data: Mapping[str, Any], run: int) -> HostedSpec:
    """Return the stored spec for a run. Fields that a later release stored are ignored."""
    known = {name: value for name, value in data.items() if name in _KNOWN}
    lists = {name: tuple(known.get(name) or ()) for name in ("packages", "gpus")}
    ports = tuple(Port(one["name"], one["port"]) for one in known.get("ports") or ())
    return HostedSpec(**{**known, **lists, "ports": ports, "run": run})


def facts(spec: HostedSpec) -> dict[str, Any]:
    """Return the environment's columns that follow from the spec."""
    return {
        "kind": spec.kind,
        "image": spec.image,
        "gpu_type": spec.gpu_type,
        "gpu_count": spec.gpu_count,
        "emulated": spec.emulated,
        "cpu_cores": spec.cpu_cores,
        "memory_gb": spec.memory_gb,
    }
