"""Limits of what a task may use of its machines: from a cluster's connection to the specs of node runners
(`fermi.runner.bounds`, `fermi.runner.disk_usage`). Pure.

    bounds   {"processes": 4096, "openFiles": 1048576, "memoryGb": 200, "diskGb": 500, "reservePercent": 5,
              "controlGroups": true, "memoryGuard": true}

All are per node, except `diskGb`, which is for the task's run folder, logs, outputs and checkpoints together.
`memoryGuard` concerns ranks inside of a user's environment (`fermi.runner.memory_guard`).
"""

from collections.abc import Mapping
from typing import Any

from fermi.runner.bounds import DEFAULT_MAX_OPEN_FILES, DEFAULT_MAX_PROCESSES, DEFAULT_RESERVE_PERCENT

BOUNDS_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "description": "what a task may use of a machine",
    "properties": {
        "processes": {
            "type": "integer",
            "minimum": 16,
            "description": f"of a node; {DEFAULT_MAX_PROCESSES} by default",
        },
        "openFiles": {
            "type": "integer",
            "minimum": 64,
            "description": f"of a node; {DEFAULT_MAX_OPEN_FILES} by default",
        },
        "memoryGb": {"type": "number", "exclusiveMinimum": 0, "description": "of a node; default: docs/training.md"},
        "diskGb": {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": "of the task's run folder, logs, outputs and checkpoints together; no bound by default",
        },
        "reservePercent": {
            "type": "number",
            "minimum": 0,
            "maximum": 50,
            "description": f"of each disk that tasks leave to the platform; {DEFAULT_RESERVE_PERCENT:g} by default",
        },
        "controlGroups": {"type": "boolean", "description": "false: the kernel is not asked to hold tasks to these"},
        "memoryGuard": {
            "type": "boolean",
            "description": "false: ranks inside of an environment are not ended before its memory is used up",
        },
    },
}


def build_bounds(connection: Mapping[str, Any], *, shared: bool) -> dict[str, Any]:
    """Return the key `bounds` of a node's spec. `shared`: tasks share machines whose resources no engine divides among
    them, so runners hold them to a part of the memory, and use control groups where they can. Elsewhere the engine has
    given each task its part."""
    asked = connection.get("bounds") or {}
    memory, disk = asked.get("memoryGb"), asked.get("diskGb")
    return {
        "bounds": {
            "processes": asked.get("processes", DEFAULT_MAX_PROCESSES),
            "open_files": asked.get("openFiles", DEFAULT_MAX_OPEN_FILES),
            "memory": int(memory * 2**30) if memory else None if shared else False,
            "disk": int(disk * 2**30) if disk else None,
            "reserve": asked.get("reservePercent", DEFAULT_RESERVE_PERCENT) / 100,
            "control_group": shared and asked.get("controlGroups", True),
        }
    }


def build_memory_guard(connection: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key `memory_guard` of the spec of a node inside of an environment."""
    return {"memory_guard": (connection.get("bounds") or {}).get("memoryGuard", True)}


def build_environment_bounds(
    node_bounds: Mapping[str, Any], disk_gb: int, *, contained: bool = False
) -> dict[str, Any]:
    """Return the key `bounds` of an environment daemon's spec, where no engine holds the environment to `disk_gb` GiB
    (0 = no bound). The node's bounds are those of `build_bounds`. `contained`: its container engine holds all but the
    disk."""
    rest = {"processes": 0, "open_files": 0, "memory": False, "control_group": False} if contained else {}
    return {"bounds": {**node_bounds["bounds"], **rest, "disk": disk_gb * 2**30 or None}}
