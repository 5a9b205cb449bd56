"""Placement of a JAX run's arrays: a mesh of devices, `data` × `fsdp`, and each weight on it whole or sharded.

    ranks   0 1 │ 2 3        fsdp 2: each row of the mesh (data 2 × fsdp 2) holds weights and optimizer state once, in
                             shards; all ranks share out the batch

A weight is split along its longest axis that `fsdp` divides. One that has no such axis is replicated.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding, PartitionSpec

from fermi.train.gpt_jax import BlockFunction, Weights, sum_squares

DATA, FSDP = "data", "fsdp"
RANK_AXES = (DATA, FSDP)
REPLICATED, SHARDED_BY_RANK, ROWS_SHARDED_BY_RANK = (
    PartitionSpec(),
    PartitionSpec(RANK_AXES),
    PartitionSpec(None, RANK_AXES),
)

Function = Callable[..., Any]


class MeshLayout:
    """Mesh and sharding. `split`: the sharded weights and their axis; `specs`: the PartitionSpec of each weight."""

    def __init__(self, devices: list[Any], fsdp: int, weights: Mapping[str, np.ndarray]) -> None:
        self.mesh, self.fsdp = jax.sharding.Mesh(np.array(devices).reshape(-1, fsdp), RANK_AXES), fsdp
        axes = {name: find_longest_axis(weight.shape, fsdp) for name, weight in weights.items()} if fsdp > 1 else {}
        self.split = {name: axis for name, axis in axes.items() if axis is not None}
        self.specs = {
            name: PartitionSpec(*[None] * self.split[name], FSDP) if name in self.split else REPLICATED
            for name in weights
        }

    def shard(self, name: str, array: np.ndarray) -> jax.Array:
        """Return this device's part of a weight, or of its optimizer state."""
        place = NamedSharding(self.mesh, self.specs[name])
        return jax.make_array_from_callback(array.shape, place, lambda index: array[index])

    def put_rows(self, array: np.ndarray, spec: PartitionSpec) -> jax.Array:
        """Return a global array of which this process has a part."""
        return jax.make_array_from_process_local_data(NamedSharding(self.mesh, spec), array)

    def gather(self, name: str, array: jax.Array) -> np.ndarray:
        """Return the whole array in this process's memory. For sharded weights all processes must call it."""
        return np.asarray(multihost_utils.process_allgather(array, tiled=True) if name in self.split else array)

    def by_rank(self, function: Function, arguments: Any, results: Any) -> Function:
        """Return `function` run by each rank on its part of the arguments. Unchecked, so that gradients stay each
        rank's own until they are averaged."""
        return jax.shard_map(function, mesh=self.mesh, in_specs=arguments, out_specs=results, check_vma=False)

    # --- Inside `by_rank` ---

    def load_weight(self, name: str, weight: jax.Array, dtype: Any) -> jax.Array:
        """Return a weight for computation. Shards are gathered in `dtype`."""
        return gather_shard(weight, self.split[name], dtype) if name in self.split else weight.astype(dtype)

    def mean(self, gradients: Weights, *others: jax.Array) -> tuple[Weights, Any]:
        """Return means over all ranks; `others` travel with the gradients of replicated weights, in one all-reduce.
        Gradients of sharded weights arrive as sums over their group."""
        own = {name: gradients[name] for name in self.split}
        rest = {name: gradient for name, gradient in gradients.items() if name not in own}
        flat, shaped = ravel_pytree((rest, others))
        rest, others = shaped(jax.lax.pmean(flat, RANK_AXES))
        if own:
            flat, shaped = ravel_pytree(own)
            own = shaped(jax.lax.pmean(flat, DATA) / self.fsdp)
        return {name: own[name] if name in own else rest[name] for name in gradients}, others

    def norm(self, gradients: Weights) -> jax.Array:
        own = {name: gradients[name] for name in self.split}
        whole = sum_squares({name: gradient for name, gradient in gradients.items() if name not in own})
        return jnp.sqrt(whole + jax.lax.psum(sum_squares(own), FSDP) if own else whole)


def find_longest_axis(shape: tuple[int, ...], parts: int) -> int | None:
    fitting = [axis for axis, length in enumerate(shape) if length % parts == 0]
    return max(fitting, key=lambda axis: shape[axis], default=None)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def gather_shard(shard: jax.Array, axis: int, dtype: Any) -> jax.Array:
    return jax.lax.all_gather(shard.astype(dtype), FSDP, axis=axis, tiled=True)


def _forward(shard: jax.Array, axis: int, dtype: Any) -> tuple[jax.Array, None]:
    return jax.lax.all_gather(shard.astype(dtype), FSDP, axis=axis, tiled=True), None


def _backward(axis: int, dtype: Any, _: None, gradient: jax.Array) -> tuple[jax.Array]:
    """Return the gradient summed over the group in float32, the type of stored weights."""
    whole = gradient.astype(jnp.float32)
    return (jax.lax.psum_scatter(whole, FSDP, scatter_dimension=axis, tiled=True),)


gather_shard.defvjp(_forward, _backward)


def scan_blocks(block: BlockFunction, x: jax.Array, parts: list[Weights], *, remat: bool) -> jax.Array:
    """Apply the blocks with few saved activations: with `remat` none, else all but the weights that were gathered for
    the block, which are gathered again. A loop, since XLA would merge what two unrolled blocks compute twice (on CPU
    always)."""
    policy = None if remat else _save_all_but_gathered
    again = jax.checkpoint(block, policy=policy, prevent_cse=False)
    stacked = jax.tree.map(lambda *weights: jnp.stack(weights), *parts)
    return jax.lax.scan(lambda x, part: (again(x, part), None), x, stacked)[0]


def _save_all_but_gathered(primitive: Any, *_: Any, **__: Any) -> bool:
    return primitive is not jax.lax.all_gather_p
