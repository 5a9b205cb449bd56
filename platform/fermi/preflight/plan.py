"""Plans one process per node, with the addresses, the port, the backend and the GPUs that training would have there."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fermi.frameworks._planning import build_plan
from fermi.jobs.ranks import Placement
from fermi.jobs.spec import JobSpec, Late, Plan, Value
from fermi.planning import plugins

COMMAND = (Late.PYTHON, "-u", "-m", "fermi.train.preflight")


def plan(spec: JobSpec) -> Plan:
    """Return the plan. The nodes stay unchanged (an engine gives each all its GPUs); only their ranks are counted as
    one each."""
    single = replace(spec, nodes=tuple(replace(node, gpu_count=min(node.gpu_count, 1)) for node in spec.nodes))
    standing_by = plugins.get_framework(
        plugins.DEFAULT_FRAMEWORK
    ).preload  # a process that was to train first can do this, too
    whole = {node.id: node for node in spec.nodes}

    def order(at: Placement) -> dict[str, Value]:
        node = whole[at.node.id]
        about = {
            "level": spec.options.get("level", "quick"),
            "stacks": _choose_stacks(spec.options),
            "packages": [package for each in plugins.list_frameworks() for package in each.info.packages],
            "patience": spec.options.get("patience", 12),
            "name": node.name,
            "addresses": [address for address in (node.ip, node.host) if address],
        }
        return {"FERMI_PREFLIGHT": json.dumps(about, sort_keys=True)}

    made = build_plan(single, COMMAND, files={}, preload=standing_by, node_env=order)
    return replace(made, nodes=tuple(replace(node, node=whole[node.node.id]) for node in made.nodes))


def _choose_stacks(options: Mapping[str, Any]) -> list[str]:
    """Return the libraries to import. A quick test imports only the one to train with: each costs a node some
    seconds."""
    return (
        plugins.list_stacks() if options.get("level") == "full" else [plugins.get_stack(options.get("framework", ""))]
    )
