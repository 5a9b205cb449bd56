"""Groups of neighbouring ranks that hold a model together: which of them cross nodes or zones, and into which the model
fits."""

import math
from itertools import groupby

from fermi.jobs import memory, recipes
from fermi.jobs.ranks import place_nodes
from fermi.jobs.spec import JobSpec


def fits_in_group(spec: JobSpec, size: int) -> bool:
    """Return whether the model's state fits into the memory of a group of `size` ranks, as far as its size is known."""
    parameters = recipes.count_model_parameters(spec) or 0
    return memory.compute_needed_gib(
        parameters, weights=size, gradients=size, optimizer=size
    ) <= memory.compute_usable_gib(spec.nodes)


def spans_zones(spec: JobSpec) -> bool:
    return len({node.zone for node in spec.nodes}) > 1


def find_natural_size(spec: JobSpec) -> int:
    """Return the size of the largest group of which no copy crosses a border: between zones where there are several and
    each one's ranks are neighbours, else between nodes."""
    nodes = [at.node for at in place_nodes(spec.nodes, spec.master)]
    zones = [(zone, sum(node.processes for node in inside)) for zone, inside in groupby(nodes, lambda node: node.zone)]
    if 1 < len(zones) == len({zone for zone, _ in zones}):
        return math.gcd(*(ranks for _, ranks in zones))
    return math.gcd(*(node.processes for node in nodes))


def crosses_zones(spec: JobSpec, size: int) -> bool:
    """Return whether a shard group has ranks of two zones."""
    zones = [at.node.zone for at in place_nodes(spec.nodes, spec.master) for _ in at.ranks]
    return any(len(set(zones[first : first + size])) > 1 for first in range(0, len(zones), size))
