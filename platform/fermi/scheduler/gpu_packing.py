"""Chooses how many environments of each size make up a number of GPUs: the fewest GPUs left over, then the fewest
environments.

Sizes of real machines divide each other (1, 2, 4, 8): then taking the largest first is optimal and fast. Other sizes,
and a fixed number of environments, are searched; a very large search is cut short, and its answer is still valid.
"""

from functools import lru_cache
from itertools import pairwise

MAX_EXACT_GPUS = 256
"""GPUs up to which the search is complete."""
MAX_EXACT_NODES = 128
"""Environments up to which the search is complete, where their number is fixed."""

SizeCounts = tuple[tuple[int, int], ...]
"""(GPUs, how many environments have them), the largest first."""


def choose_sizes(available: dict[int, int], total: int, nodes: int | None = None) -> dict[int, int] | None:
    """Return the number of environments by size, `nodes` of them where that is given; None: there are not enough.
    `total`: GPUs."""
    most = [(size, min(count, -(-total // size) if nodes is None else nodes)) for size, count in available.items()]
    return _choose_sizes(tuple(sorted(most, reverse=True)), total, nodes)


@lru_cache(maxsize=4096)
def _choose_sizes(sizes: SizeCounts, total: int, nodes: int | None) -> dict[int, int] | None:
    if nodes is not None:
        return _choose_node_count(sizes, total, nodes)
    if sum(size * count for size, count in sizes) < total:
        return None
    if all(larger % smaller == 0 for (larger, _), (smaller, _) in pairwise(sizes)):
        sums = range(total, total + sizes[0][0])
        return next(filter(None, (_largest_first(sizes, one) for one in sums)), None)
    return _choose_fewest(sizes, total)


def _largest_first(sizes: SizeCounts, total: int) -> dict[int, int] | None:
    found = {}
    for size, count in sizes:
        if taken := min(count, total // size):
            found[size] = taken
            total -= taken * size
    return None if total else found


def _choose_fewest(sizes: SizeCounts, total: int) -> dict[int, int]:
    """Choose from any sizes. For a large total, the largest environments are taken first until the rest can be
    searched."""
    largest, count = sizes[0]
    ahead = min(count, max(0, total - MAX_EXACT_GPUS) // largest)
    rest = ((largest, count - ahead), *sizes[1:])
    left = total - ahead * largest
    best = {0: 0}  # sum -> the fewest environments
    stages = [best]
    for size, there in rest:
        grown = dict(best)
        for reached, used in best.items():
            for more in range(1, there + 1):
                value = reached + more * size
                if used + more < grown.get(value, MAX_EXACT_GPUS * MAX_EXACT_GPUS):
                    grown[value] = used + more
                if value >= left:
                    break
        best = grown
        stages.append(best)
    reached = min(value for value in best if value >= left)
    found: dict[int, int] = {}
    for (size, _), before, after in zip(reversed(rest), reversed(stages[:-1]), reversed(stages[1:]), strict=True):
        fewest = after[reached]
        taken = next(n for n in range(reached // size + 1) if before.get(reached - n * size, -1) == fewest - n)
        reached -= taken * size
        if taken:
            found[size] = taken
    if ahead:
        found[largest] = found.get(largest, 0) + ahead
    return found


def _choose_node_count(sizes: SizeCounts, total: int, nodes: int) -> dict[int, int] | None:
    """Choose `nodes` environments: start with the largest, and exchange them for smaller ones as long as that leaves
    fewer GPUs over."""
    found: dict[int, int] = {}
    for size, count in sizes:
        if taken := min(count, nodes - sum(found.values())):
            found[size] = taken
    spare = sum(size * count for size, count in found.items()) - total
    if sum(found.values()) < nodes or spare < 0:
        return None
    if nodes <= MAX_EXACT_NODES:
        return _search_node_count(sizes, total, nodes)
    for size, _ in sizes:  # a smaller one for a larger one, where that still does
        for other, there in reversed(sizes):
            less = size - other
            if less > 0 and size in found:
                taken = min(spare // less, found[size], there - found.get(other, 0))
                found[size] -= taken
                found[other] = found.get(other, 0) + taken
                spare -= taken * less
    return {size: count for size, count in found.items() if count}


def _search_node_count(sizes: SizeCounts, total: int, nodes: int) -> dict[int, int] | None:
    """Search exactly: the sums that each number of environments can reach are the bits of an integer."""
    reach = [1] + [0] * nodes
    stages = [tuple(reach)]
    for size, there in sizes:
        left, piece = there, 1
        while left:
            piece = min(piece, left)
            for used in range(nodes - piece, -1, -1):
                reach[used + piece] |= reach[used] << (piece * size)
            left, piece = left - piece, piece * 2
        stages.append(tuple(reach))
    enough = reach[nodes] >> total
    if not enough:
        return None
    value = total + (enough & -enough).bit_length() - 1
    found: dict[int, int] = {}
    for (size, there), before in zip(reversed(sizes), reversed(stages[:-1]), strict=True):
        for taken in range(min(there, nodes, value // size) + 1):
            if before[nodes - taken] >> (value - taken * size) & 1:
                break
        nodes, value = nodes - taken, value - taken * size
        if taken:
            found[size] = taken
    return found
