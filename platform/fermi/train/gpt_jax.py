"""The small GPT of `train_ddp` and its optimizer, as functions over a dictionary of arrays.

Names, shapes and initial values of the weights are those of `train_ddp.GPT`: from one seed both frameworks start at the
same point, so that their curves can be compared. This module is independent of processes and devices.
"""

import argparse
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Weights = dict[str, Any]  # torch's parameter name -> array
WeightReader = Callable[[str, jax.Array, Any], jax.Array]
BlockFunction = Callable[[jax.Array, Weights], jax.Array]
BlockRunner = Callable[[BlockFunction, jax.Array, list[Weights]], jax.Array]

FIRST_BLOCK = "blocks.0."
BETAS, EPSILON = (0.9, 0.95), 1e-8


class TorchGenerator:
    """torch's random generator on CPU: from the same seed, in the same order, the same numbers in float32.

    Uniform numbers are bitwise equal. Normal ones are Box-Muller pairs of uniform ones and equal up to rounding (within
    2e-6); tensors of fewer than 16 elements, which torch draws in another way, get other numbers.
    """

    def __init__(self, seed: int) -> None:
        self.bits = np.random.MT19937()
        self.bits._legacy_seeding(seed & 0xFFFFFFFF)  # Knuth's, as torch seeds its own

    def uniform(self, *shape: int) -> np.ndarray:
        """Return numbers in [0, 1): the lower 24 bits of each random integer."""
        drawn = self.bits.random_raw(math.prod(shape)) & 0xFFFFFF
        return (drawn.astype(np.float32) * np.float32(2**-24)).reshape(shape)

    def normal(self, *shape: int) -> np.ndarray:
        """Return normal numbers, in blocks of 16; where the size is no multiple, the last 16 are drawn again."""
        size = math.prod(shape)
        first = self.uniform(size)
        whole = size - size % 16
        numbers = np.empty(size, np.float32)
        numbers[:whole] = apply_box_muller(first[:whole])
        if size % 16:
            numbers[-16:] = apply_box_muller(self.uniform(16))[-size:]
        return numbers.reshape(shape)


def apply_box_muller(uniform: np.ndarray) -> np.ndarray:
    """Return normal numbers: the first 8 of each 16 become radii, the others angles."""
    radii, turns = np.split(uniform.astype(np.float64).reshape(-1, 16), 2, axis=1)
    radii, angles = np.sqrt(-2 * np.log1p(-radii)), 2 * np.pi * turns
    return np.concatenate((radii * np.cos(angles), radii * np.sin(angles)), axis=1).ravel()


def make_initial_weights(args: argparse.Namespace) -> Weights:
    """Return the weights of `torch.manual_seed(args.seed); train_ddp.GPT(args)`: layers draw their defaults as they are
    created, and then all matrices are drawn again."""
    generator, width = TorchGenerator(args.seed), args.n_embd
    weights: Weights = {}

    def embedding(name: str, rows: int) -> None:
        weights[f"{name}.weight"] = generator.normal(rows, width)

    def norm(name: str) -> None:
        weights[f"{name}.weight"], weights[f"{name}.bias"] = np.ones(width, np.float32), np.zeros(width, np.float32)

    def linear(name: str, inputs: int, outputs: int, *, bias: bool = True) -> None:
        low, span = np.float32(-1 / math.sqrt(inputs)), np.float32(2 / math.sqrt(inputs))
        weights[f"{name}.weight"] = generator.uniform(outputs, inputs) * span + low
        if bias:
            weights[f"{name}.bias"] = generator.uniform(outputs) * span + low

    embedding("token", args.vocab_size)
    embedding("position", args.block_size)
    for block in (f"blocks.{index}" for index in range(args.n_layer)):
        norm(f"{block}.norm_1")
        norm(f"{block}.norm_2")
        linear(f"{block}.qkv", width, 3 * width)
        linear(f"{block}.mix", width, width)
        linear(f"{block}.expand", width, 4 * width)
        linear(f"{block}.contract", 4 * width, width)
    norm("norm")
    linear("head", width, args.vocab_size, bias=False)
    for name, weight in weights.items():
        if weight.ndim == 2:
            into_residual = name.endswith(("mix.weight", "contract.weight"))
            deviation = 0.02 / math.sqrt(2 * args.n_layer) if into_residual else 0.02
            weights[name] = generator.normal(*weight.shape) * np.float32(deviation)
    return weights


def cast_weight(_: str, weight: jax.Array, dtype: Any) -> jax.Array:
    return weight.astype(dtype)


def apply_blocks(block: BlockFunction, x: jax.Array, parts: list[Weights]) -> jax.Array:
    for part in parts:
        x = block(x, part)
    return x


def compute_loss(
    weights: Weights,
    rows: jax.Array,
    args: argparse.Namespace,
    dtype: Any,
    take: WeightReader = cast_weight,
    pass_on: BlockRunner = apply_blocks,
) -> jax.Array:
    """Return the mean cross-entropy, in nats per token. `rows`: (batch_size, block_size + 1) tokens. Products are in
    `dtype`, sums and normalisation in float32. `take` converts a weight for computation; blocks' weights have the first
    block's names there. `pass_on` sends the activations through the blocks."""

    def norm(name: str, x: jax.Array, weights: Weights) -> jax.Array:
        x = x - x.mean(-1, keepdims=True)
        x = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5)
        return x * taken(f"{name}.weight", weights, jnp.float32) + taken(f"{name}.bias", weights, jnp.float32)

    def linear(name: str, x: jax.Array, weights: Weights) -> jax.Array:
        x = jnp.einsum("...i,oi->...o", x.astype(dtype), taken(f"{name}.weight", weights, dtype))
        return x + taken(f"{name}.bias", weights, dtype) if f"{name}.bias" in weights else x

    def taken(name: str, weights: Weights, dtype: Any) -> jax.Array:
        return take(name, weights[name], dtype)

    def block(x: jax.Array, part: Weights) -> jax.Array:
        qkv = linear(f"{FIRST_BLOCK}qkv", norm(f"{FIRST_BLOCK}norm_1", x, part), part).reshape(
            batch, length, 3, args.n_head, -1
        )
        heads = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], is_causal=True)
        x = x + linear(f"{FIRST_BLOCK}mix", heads.reshape(batch, length, -1), part)
        inner = jax.nn.gelu(
            linear(f"{FIRST_BLOCK}expand", norm(f"{FIRST_BLOCK}norm_2", x, part), part), approximate=False
        )
        return x + linear(f"{FIRST_BLOCK}contract", inner, part)

    tokens, targets = rows[:, :-1], rows[:, 1:]
    batch, length = tokens.shape
    x = taken("token.weight", weights, jnp.float32)[tokens]
    x = x + taken("position.weight", weights, jnp.float32)[:length]
    x = pass_on(block, x, [select_block(weights, f"blocks.{index}.") for index in range(args.n_layer)])
    logits = linear("head", norm("norm", x, weights), weights).astype(jnp.float32)
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return (jax.nn.logsumexp(logits, axis=-1) - chosen).mean()


def select_block(weights: Weights, block: str) -> Weights:
    """Return a block's weights under the first block's names."""
    return {
        FIRST_BLOCK + name.removeprefix(block): weight for name, weight in weights.items() if name.startswith(block)
    }


def sum_squares(gradients: Weights) -> Any:
    """Return the square of the norm over all gradients."""
    return sum(jnp.square(gradient).sum() for gradient in gradients.values())


def clip_gradients(gradients: Weights, norm: Any, limit: float) -> Weights:
    """Return the gradients scaled so that `norm`, which is their norm, becomes at most `limit`; 0: unchanged."""
    if not limit:
        return gradients
    factor = jnp.minimum(limit / (norm + 1e-6), 1)
    return {name: gradient * factor for name, gradient in gradients.items()}


def compute_bias_corrections(step: int) -> tuple[float, float]:
    return 1 - BETAS[0] ** step, 1 - BETAS[1] ** step


def apply_adamw(
    weights: Weights, means: Weights, squares: Weights, gradients: Weights, rate: Any, corrections: Any, decay: float
) -> tuple[Weights, Weights, Weights]:
    """Return weights and moments after a step of torch's AdamW; `decay` applies to matrices only. `rate` and
    `corrections` change with each step."""
    new: tuple[Weights, Weights, Weights] = ({}, {}, {})
    for name, gradient in gradients.items():
        mean = means[name] + (1 - BETAS[0]) * (gradient - means[name])
        square = BETAS[1] * squares[name] + (1 - BETAS[1]) * jnp.square(gradient)
        weight = weights[name] * (1 - rate * decay) if gradient.ndim >= 2 else weights[name]
        change = mean / (jnp.sqrt(square / corrections[1]) + EPSILON)
        for one, value in zip(new, (weight - rate / corrections[0] * change, mean, square), strict=True):
            one[name] = value
    return new
