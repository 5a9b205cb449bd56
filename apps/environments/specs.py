"""Conversion of specs between the database and engines."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import orjson

from fermi.engines.environments import EnvironmentPort, EnvironmentSpec

_FIELD_NAMES = {one.name for one in fields(EnvironmentSpec)}


def dump_spec(spec: EnvironmentSpec) -> dict[str, Any]:
    """Return the spec as it is stored, without its run."""
    found: dict[str, Any] = orjson.loads(orjson.dumps(asdict(replace(spec, run=0))))
    return found


def load_spec(data: Mapping[str, Any], run: int) -> EnvironmentSpec:
    """Return the stored spec for a run. Fields that a later release stored are ignored."""
    known = {name: value for name, value in data.items() if name in _FIELD_NAMES}
    lists = {name: tuple(known.get(name) or ()) for name in ("packages", "gpus")}
    ports = tuple(EnvironmentPort(one["name"], one["port"]) for one in known.get("ports") or ())
    return EnvironmentSpec(**{**known, **lists, "ports": ports, "run": run})


def build_columns(spec: EnvironmentSpec) -> dict[str, Any]:
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
