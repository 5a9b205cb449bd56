"""How the global batch of a job is divided when it runs with another number of processes than was asked for.

The global batch and the learning rate stay those of the size asked for. What a sample is depends on its place in the
global batch alone (`fermi.train.train_ddp.Samples`), so a batch that is divided anew has the same samples.

    nodes   ranks   rows of each rank   micro steps      4 nodes of 2 GPUs asked for, batchSize 8
    4       8       8                   1                64 sequences, whatever the size
    3       6       6 6 5 5 5 5         2
    2       4       8                   2

On how many nodes a job may run is said in `fermi.planning.elastic_sizes`.
"""

import math
from dataclasses import dataclass, replace

from fermi.jobs import recipes
from fermi.jobs.ranks import place_nodes
from fermi.jobs.spec import JobSpec

MAX_STEPS_TRIED = 10_000


@dataclass(frozen=True, slots=True)
class BatchDivision:
    """Division of a global batch into micro steps, in each of which a rank computes `rows[rank]` sequences."""

    steps: int
    rows: tuple[int, ...]


def divide_batch(batch: int, ranks: int, max_rows: int, *, even: bool = False) -> BatchDivision | None:
    """Return the division with the fewest micro steps that give no rank more than the maximum of rows, or None where
    the batch cannot be divided exactly or a rank would have no rows. The remainder goes to the first ranks. `even`: all
    ranks must have equally many rows."""
    fewest = math.ceil(batch / (ranks * max_rows))
    for steps in range(fewest, min(batch // ranks, fewest + MAX_STEPS_TRIED) + 1):
        if batch % steps == 0 and not (even and batch // steps % ranks):
            each, left = divmod(batch // steps, ranks)
            return BatchDivision(steps, tuple(each + (rank < left) for rank in range(ranks)))
    return None


def divide_job_batch(spec: JobSpec) -> BatchDivision | None:
    """Return the division among the nodes that the job runs on now; None where its batch is unknown or cannot be
    divided."""
    asked = spec.elastic
    if asked is None or not asked.batch:
        return None
    return divide_batch(asked.batch, spec.world_size, asked.rows, even=asked.even)


def is_resized(spec: JobSpec) -> bool:
    """Return whether the job runs with another number of processes than was asked for."""
    return spec.elastic is not None and spec.elastic.world_size not in (0, spec.world_size)


def restore_full_size(spec: JobSpec) -> JobSpec:
    """Return the job at the size asked for: on the first `maxNodes` of all chosen nodes, in the order of ranks."""
    asked = spec.elastic
    assert asked is not None
    nodes = [at.node for at in place_nodes(asked.nodes, asked.master)]
    return replace(spec, nodes=tuple(nodes[: asked.max_nodes]), master=asked.master)


def build_rank_env(spec: JobSpec) -> dict[int, dict[str, str]]:
    """Return the variables by rank that a script needs in order to keep the global batch."""
    asked = spec.elastic
    if asked is None or not asked.world_size:
        return {}
    shared = {"FERMI_FULL_WORLD_SIZE": str(asked.world_size)}
    if (share := divide_job_batch(spec)) is None:
        return dict.fromkeys(range(spec.world_size), shared)
    shared |= {"FERMI_GLOBAL_BATCH_SIZE": str(asked.batch), "FERMI_ACCUMULATION_STEPS": str(share.steps)}
    return {rank: {**shared, "FERMI_LOCAL_BATCH_SIZE": str(rows)} for rank, rows in enumerate(share.rows)}


def set_batch_hyperparameters(spec: JobSpec, share: BatchDivision) -> JobSpec:
    """Return the job with the batch as the reference trainer's hyperparameters; the learning rate stays that of the
    size asked for. `FERMI_LOCAL_BATCH_SIZE` wins over `batchSize` where ranks have different shares."""
    assert spec.elastic is not None
    if spec.entrypoint is not None:
        return spec
    given = {**spec.hyperparameters, "gradientAccumulationSteps": share.steps, "batchSize": max(share.rows)}
    scaling = given.get("learningRateScaling", "none")
    if scaling != "none":
        rate = given.get("learningRate", recipes.DEFAULT_LEARNING_RATE)
        given |= {
            "learningRate": rate * recipes.LEARNING_RATE_SCALES[scaling](spec.elastic.world_size),
            "learningRateScaling": "none",
        }
    return replace(spec, hyperparameters=given)
