"""Functions that training scripts call by names known from guides: a process's place among the others, its logging, its
share of the data. The reference trainers do the same by other means (`world_jax.JaxWorld`, `common.Report`,
`common.Samples`)."""

import argparse
import logging
import os
import sys
from typing import Any

import numpy as np

from fermi.train import common


def init_distributed_environment() -> dict[str, Any]:
    """Find this process's place by the launcher's variables or Slurm's, and initialise JAX's distributed runtime.
    Return `rank`, `world_size`, `local_rank`, and `coordinator` (host:port; None for a single process). Raise
    common.ConfigError where the variables contradict each other."""
    from fermi.train.world_jax import JaxWorld

    asked: dict[str, Any] = dict.fromkeys(("local_rank", "coordinator_address", "num_processes", "process_id"))
    asked |= {"initialization_timeout_seconds": 300, "heartbeat_timeout_seconds": 100}
    args = argparse.Namespace(**asked)
    world = JaxWorld.find(args)
    world.join(args)
    return {
        "rank": world.rank,
        "world_size": world.size,
        "local_rank": world.local_rank,
        "coordinator": world.coordinator,
    }


def init_logging(dist_info: dict[str, Any]) -> None:
    """Log to standard error with the rank before each line: rank 0 from INFO on, all others warnings and errors."""
    level = logging.INFO if dist_info["rank"] == 0 else logging.WARNING
    form = f"[rank {dist_info['rank']}] %(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(level=level, format=form, stream=sys.stderr, force=True)


def get_distributed_batch(
    path: str,
    step: int,
    *,
    batch_size: int = 8,
    block_size: int = 64,
    vocab_size: int = 65536,
    seed: int = 1337,
    rank: int | None = None,
    world_size: int | None = None,
) -> np.ndarray:
    """Return this rank's batch of the step from a file of uint16 tokens: int32, `batch_size` rows of `block_size` + 1
    tokens, inputs and targets in one. Each rank gets other rows, and the same ones at each call. `rank` and
    `world_size`: by default RANK and WORLD_SIZE. Raise common.ConfigError for a file that cannot be read or is too
    short."""
    here = int(os.environ.get("RANK", "0")) if rank is None else rank
    size = int(os.environ.get("WORLD_SIZE", "1")) if world_size is None else world_size
    sizes = {"batch_size": batch_size, "block_size": block_size, "vocab_size": vocab_size}
    args = argparse.Namespace(**sizes, seed=seed, preload=False)
    return common.Samples(path, args, here, size).draw(step, 0)
