"""What a choice of nodes adds up to, and what is worth knowing about it before launch."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from fermi.jobs import network
from fermi.jobs.spec import Node, Problem


def summarize_nodes(nodes: Sequence[Node]) -> dict[str, Any]:
    """In the API's spelling; types and zones in the order in which the nodes name them."""
    zones = _list_distinct(node.zone for node in nodes)
    return {
        "nodeCount": len(nodes),
        "totalGpus": sum(node.gpu_count for node in nodes),
        "worldSize": sum(node.processes for node in nodes),
        "totalCpus": sum(node.cpu_cores for node in nodes),
        "totalMemoryGb": sum(node.memory_gb for node in nodes),
        "gpuTypes": _list_distinct(node.gpu_type for node in nodes),
        "zones": zones,
        "crossZone": len(zones) > 1,
        "isDistributed": len(nodes) > 1,
    }


def find_warnings(nodes: Sequence[Node], master: str | None = None) -> list[Problem]:
    """`master` is a node id; without one nothing is said about it."""
    found = []
    if len(zones := _list_distinct(node.zone for node in nodes)) > 1:
        found.append(Problem("", "CROSS_ZONE", {"zones": ", ".join(zones)}))
    if len(types := _list_distinct(node.gpu_type or "CPU" for node in nodes)) > 1:
        found.append(Problem("", "GPU_TYPES_DIFFER", {"types": ", ".join(types)}))
    if differing := _list_differing_versions(nodes):
        found.append(Problem("", "VERSIONS_DIFFER", {"versions": "; ".join(differing)}))
    found += network.find_warnings(nodes)
    found += _find_better_master(nodes, master)
    if emulated := [node.name for node in nodes if node.emulated]:
        found.append(Problem("", "EMULATED_GPUS", {"environments": ", ".join(emulated)}))
    return found


def _list_differing_versions(nodes: Sequence[Node]) -> list[str]:
    """`torch 2.4 / 2.5`, for what more than one node states."""
    names = _list_distinct(name for node in nodes for name in node.versions)
    stated = {name: _list_distinct(node.versions.get(name, "") for node in nodes) for name in names}
    return [f"{name} {' / '.join(values)}" for name, values in stated.items() if len(values) > 1]


def _find_better_master(nodes: Sequence[Node], master: str | None) -> list[Problem]:
    """Most traffic to the master should stay in its zone, so it belongs where most of the processes are."""
    chosen = next((node for node in nodes if node.id == master), None)
    if chosen is None:
        return []
    weight: Counter[str] = Counter()
    for node in nodes:
        weight[node.zone] += node.processes
    zone, most = weight.most_common(1)[0]
    if weight[chosen.zone] == most:
        return []
    params = {"master": chosen.name, "zone": chosen.zone, "gpus": weight[chosen.zone], "best": zone, "most": most}
    return [Problem("distributedConfig.masterNode", "MASTER_NOT_BEST", params)]


def _list_distinct(values: Iterable[str]) -> list[str]:
    return [value for value in dict.fromkeys(values) if value]
