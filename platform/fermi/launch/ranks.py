"""Who gets which rank. One rule everywhere:

nodes   n1 (master, 2 GPUs)   n3 (4 GPUs)      n5 (8 GPUs)        the others in plain string order of their names
rank       0 1                 2 3 4 5          6 7 … 13          dense; node's offset + local rank
local      0 1                 0 1 2 3          0 1 … 7           from 0 on each node
node       0                   1                2
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fermi.launch.spec import Node


@dataclass(frozen=True, slots=True)
class Placement:
    """A node's place in the job: its ranks are `first_rank … first_rank + node.processes - 1`."""

    node: Node
    node_rank: int
    first_rank: int

    @property
    def ranks(self) -> range:
        return range(self.first_rank, self.first_rank + self.node.processes)


def place(nodes: Iterable[Node], master: str) -> list[Placement]:
    """`master` is a node id. Plain string order: gn39 < gn40 < gn7 (requirement document 000); equal names by id."""
    placements: list[Placement] = []
    first_rank = 0
    for node_rank, node in enumerate(sorted(nodes, key=lambda n: (n.id != master, n.name, n.id))):
        placements.append(Placement(node, node_rank, first_rank))
        first_rank += node.processes
    return placements


def order_workers(workers: Sequence[str], master_node: str) -> list[str]:
    """Workers named `<node>-<number>`: the master's node first, nodes in string order, numbers as numbers."""

    def key(worker: str) -> tuple[bool, str, int]:
        node, _, number = worker.rpartition("-")
        return node != master_node, node, int(number)

    return sorted(workers, key=key)
