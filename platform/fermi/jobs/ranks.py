"""Assigns ranks to nodes. The same rule everywhere:

nodes   n1 (master, 2 GPUs)   n3 (4 GPUs)      n5 (8 GPUs)        the others in plain string order of their names
rank       0 1                 2 3 4 5          6 7 … 13          dense; node's offset + local rank
local      0 1                 0 1 2 3          0 1 … 7           from 0 on each node
node       0                   1                2
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby

from fermi.jobs.spec import Node

_WORKER = re.compile(r"(?P<node>[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)-(?P<number>0|[1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class Placement:
    """A node's place in the job: its ranks are `first_rank … first_rank + node.processes - 1`."""

    node: Node
    node_rank: int
    first_rank: int

    @property
    def ranks(self) -> range:
        return range(self.first_rank, self.first_rank + self.node.processes)


def place_nodes(nodes: Iterable[Node], master: str) -> list[Placement]:
    """Return the nodes with their ranks. `master` is a node id. Plain string order: gn39 < gn40 < gn7 (requirement
    document 000); equal names by id."""
    placements: list[Placement] = []
    first_rank = 0
    for node_rank, node in enumerate(sorted(nodes, key=lambda n: (n.id != master, n.name, n.id))):
        placements.append(Placement(node, node_rank, first_rank))
        first_rank += node.processes
    return placements


def select_first_ranks(nodes: Iterable[Node], master: str, world_size: int) -> tuple[Node, ...]:
    """Return the nodes, or parts of them, that have the first `world_size` ranks: later nodes are left out, the last
    one may be used in part. A list in a node's `engine` that is as long as the node has ranks has one entry for each,
    and is cut, too."""
    taken = []
    for at in place_nodes(nodes, master):
        node, left = at.node, min(at.node.processes, world_size - at.first_rank)
        if 0 < left < node.processes:
            whole = node.processes
            engine = {
                name: value[:left] if isinstance(value, list) and len(value) == whole else value
                for name, value in node.engine.items()
            }
            node = replace(node, gpu_count=left, engine=engine)
        if left > 0:
            taken.append(node)
    return tuple(taken)


@dataclass(frozen=True, slots=True)
class WorkerSlot:
    """A worker's ranks; `rank` None = it takes no part, because the world is smaller than the group."""

    worker: str
    rank: int | None
    local_rank: int | None
    node_rank: int | None


def parse_worker_name(worker: str) -> tuple[str, int]:
    """Return node and number of a worker named `<node>-<number>`. Raises ValueError for any other name."""
    match = _WORKER.fullmatch(worker)
    if match is None:
        raise ValueError(worker)
    return match["node"], int(match["number"])


def order_workers(workers: Iterable[str], master_node: str) -> list[str]:
    """Return workers named `<node>-<number>` in order: the master's node first, nodes in string order, numbers as
    numbers."""

    def key(worker: str) -> tuple[bool, str, int]:
        node, number = parse_worker_name(worker)
        return node != master_node, node, number

    return sorted(workers, key=key)


def assign_worker_slots(workers: Iterable[str], master_node: str, world_size: int | None = None) -> list[WorkerSlot]:
    """Return every worker's slot, in the order of ranks: the same ranks that `place_nodes` gives their nodes."""
    by_node = groupby(order_workers(workers, master_node), lambda worker: parse_worker_name(worker)[0])
    everyone = ((node_rank, *one) for node_rank, (_, on_node) in enumerate(by_node) for one in enumerate(on_node))
    return [
        WorkerSlot(worker, rank, local_rank, node_rank)
        if world_size is None or rank < world_size
        else WorkerSlot(worker, None, None, None)
        for rank, (node_rank, local_rank, worker) in enumerate(everyone)
    ]
