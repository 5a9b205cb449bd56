"""Computes whether a model's state fits: weights, gradients and Adam's state in mixed precision, in GiB.

Per parameter 2 bytes of weight, 2 of gradient and 12 of optimizer (4 master weight + 8 moments): 16 in all (ZeRO paper,
§3.1). DistributedDataParallel copies gradients into the buckets that it sends: 4 more, unless `gradient_as_bucket_view`
(torch/nn/parallel/distributed.py). What forward and backward passes keep comes on top.
"""

from collections.abc import Iterable

from fermi.jobs import gpus
from fermi.jobs.spec import Node
from fermi.schema import humanize

WEIGHT_BYTES, GRADIENT_BYTES, OPTIMIZER_BYTES = 2, 2, 12
BUCKET_BYTES = 4
"""Buckets have the type of the weights, which is float32 under autocast."""

MAX_STATE_SHARE = 0.8
"""Share of a GPU's memory that the state may take; the rest is for activations."""


def compute_usable_gib(nodes: Iterable[Node]) -> float:
    """Return the GiB that the state may take of the smallest GPU. Emulated GPUs count as what they stand for; a rank
    without a GPU has its part of its node's memory."""
    nodes = list(nodes)
    sizes = [float(gpus.find_gpu(node.gpu_type).memory) for node in nodes if node.gpu_count]
    sizes += [node.memory_gb / node.processes for node in nodes if not node.gpu_count]
    return min(sizes) * MAX_STATE_SHARE


def compute_needed_gib(
    parameters: int, *, weights: int = 1, gradients: int = 1, optimizer: int = 1, in_buckets: bool = False
) -> float:
    """Return GiB per rank. `weights`, `gradients`, `optimizer`: among how many ranks each is split; 0 = it is
    elsewhere. `in_buckets`: gradients are copied to be sent, as DDP does."""
    parts = (
        (WEIGHT_BYTES, weights),
        (GRADIENT_BYTES, gradients),
        (OPTIMIZER_BYTES, optimizer),
        (BUCKET_BYTES, int(in_buckets)),
    )
    return sum(size * parameters / ranks for size, ranks in parts if ranks) / 2**30


def format_gib(gib: float) -> str:
    """Return GiB as text."""
    return humanize.format_bytes(gib * 2**30)
