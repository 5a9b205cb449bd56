"""Estimates the bytes that a split takes on the GPU that holds most.

* Parameters: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
  eq. 2, divided as Megatron divides them.
* Bytes per parameter: the table in Megatron's user guide, "Distributed Optimizer".
* Activations: Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", table 2, and
  for the pipeline its §4.2.3: the first stage holds as many micro-batches as there are stages.
* ZeRO: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", §5; with
  bfloat16 DeepSpeed keeps gradients in float32 as Megatron does.
"""

from dataclasses import dataclass

from fermi.frameworks.megatron.request import MegatronRequest, ModelShape
from fermi.frameworks.megatron.split import Split

USABLE_SHARE = 0.94
"""Share of a GPU's memory for all this; the rest is CUDA's context, NCCL's buffers, and gaps. Our assumption."""

EXPERTS_PER_TOKEN = 2
"""Experts per token: Megatron's `--moe-router-topk`."""

_STATE_BYTES = {"float16": (4, 16, 20), "bfloat16": (6, 12, 18), "float32": (8, 8, 16)}
"""Bytes per parameter: held by every rank, split over the data-parallel ranks, and all without the distributed
optimizer. bfloat16 = 2 weight + 4 gradient + (4 weight + 8 moments)."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes on one GPU."""

    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def state(self) -> float:
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        return self.state + self.activations


def estimate_memory(request: MegatronRequest, split: Split) -> MemoryEstimate:
    """Return the memory of the stage that takes most: the first one has the embedding and most micro-batches in flight,
    the last one the logits."""
    first = _estimate_stage(request, split, first=True)
    return (
        first
        if split.pipeline == 1
        else max(first, _estimate_stage(request, split, first=False), key=lambda e: e.total)
    )


def compute_usable_bytes(request: MegatronRequest) -> float:
    return request.cluster.gpu.memory * 2**30 * USABLE_SHARE


def count_parameters(model: ModelShape) -> int:
    """Return the parameters of the whole model."""
    dense, experts = _count_layer_parameters(model, 1, 1)
    ends = _count_embedding(model, 1) * (1 if model.tied else 2) + model.sequence * model.hidden + 2 * model.hidden
    return int(model.layers * (dense + experts) + ends)


def count_stage_parameters(model: ModelShape, split: Split, *, first: bool = True) -> tuple[float, float]:
    """Return the parameters of one GPU of the first or the last stage: those that all data-parallel ranks have, and its
    experts'."""
    dense, experts = _count_layer_parameters(model, split.tensor, split.expert)
    layers = model.layers / split.pipeline
    if split.pipeline == 1:
        ends = _count_embedding(model, split.tensor) * (1 if model.tied else 2)
        ends += model.sequence * model.hidden + 2 * model.hidden
    else:
        ends = _count_embedding(model, split.tensor) + (model.sequence * model.hidden if first else 2 * model.hidden)
    return layers * dense + ends, layers * experts


def _count_embedding(model: ModelShape, tensor: int) -> float:
    return -(-model.vocabulary // tensor) * model.hidden


def _count_layer_parameters(model: ModelShape, tensor: int, expert: int) -> tuple[float, float]:
    """h = hidden size. Attention 4h² + 4h, MLP 8h² + 5h, two norms 4h; the biases of the second matrices and the norms
    are on every tensor-parallel rank."""
    h = model.hidden
    attention, norms = (4 * h * h + 3 * h) / tensor + h, 4 * h
    mlp = (8 * h * h + 4 * h) / tensor + h
    if not model.experts:
        return attention + norms + mlp, 0.0
    return attention + norms + model.experts * h, model.experts / expert * mlp


def _estimate_stage(request: MegatronRequest, split: Split, *, first: bool) -> MemoryEstimate:
    model, dtype = request.model, request.cluster.dtype
    dense, experts = count_stage_parameters(model, split, first=first)
    held, shared, alone = _STATE_BYTES[dtype]
    shards = split.data * split.context
    if split.zero is not None:
        return MemoryEstimate(
            *_split_by_zero(dense, dtype, shards, split.zero), _estimate_activations(request, split, first=first)
        )
    if split.distributed_optimizer:
        optimizer = shared * (dense / shards + experts / max(1, shards / split.expert))
        rest = held * (dense + experts)
    else:
        rest = held * (dense + experts)
        optimizer = (alone - held) * (dense + experts)
    width = 4 if dtype == "float32" else 2
    weights = width * (dense + experts)
    return MemoryEstimate(weights, rest - weights, optimizer, _estimate_activations(request, split, first=first))


def _split_by_zero(parameters: float, dtype: str, shards: int, stage: int) -> tuple[float, float, float]:
    """Return the bytes of weights, gradients and optimizer: stage 1 splits the last of them, 2 the last two, 3 all. The
    optimizer's share is a float32 copy and two moments."""
    weights = 4 if dtype == "float32" else 2
    gradients = 2 if dtype == "float16" or (dtype == "bfloat16" and stage == 0) else 4
    parts = ((weights, 3), (gradients, 2), (12, 1))
    found = [parameters * size / (shards if stage >= split_from else 1) for size, split_from in parts]
    return found[0], found[1], found[2]


def estimate_layer_activations(request: MegatronRequest, split: Split) -> tuple[float, float]:
    """Bytes per layer and micro-batch: kept until the backward pass, and while one layer is computed once more.

    s sequence, b micro-batch, h hidden, a heads, t tensor; in bytes of half precision, masks of one byte included:
    without sequence parallelism sbh (10 + 24/t + 5as/ht), with it sbh/t (34 + 5as/h); selective recomputation drops
    the term with as/h; full recomputation keeps a layer's input, 2sbh."""
    model, t = request.model, split.tensor
    sbh = model.sequence / split.context * split.micro * model.hidden
    attention = 5 * model.heads * model.sequence / model.hidden / t  # of sbh
    routed = EXPERTS_PER_TOKEN if model.experts else 1
    mlp = 19 * (routed - 1) / t  # of 34, what the MLP keeps, for every further expert
    linear = (34 / t if split.sequence_parallel else 10 + 24 / t) + mlp
    width = 2 if request.cluster.dtype == "float32" else 1
    if split.recompute == "full":
        kept = 2 / t if split.sequence_parallel else 2
        return width * sbh * kept, width * sbh * (linear + attention)
    if split.recompute == "selective":
        return width * sbh * linear, width * sbh * attention
    return width * sbh * (linear + attention), 0.0


def _estimate_activations(request: MegatronRequest, split: Split, *, first: bool) -> float:
    model = request.model
    kept, again = estimate_layer_activations(request, split)
    stages, chunks, batches = split.pipeline, split.virtual, split.micro_batches
    in_flight = float(min(stages, batches)) if first else 1.0
    if chunks > 1:  # §4.2.3: the interleaved schedule's share on top
        in_flight = min(stages * (1 + (stages - 1) / (stages * chunks)), batches) if first else 1 + 1 / chunks
    total = kept * model.layers / stages * in_flight + again
    sb = model.sequence / split.context * split.micro
    if first:
        total += sb * model.hidden * in_flight / (split.tensor if split.sequence_parallel else 1)  # embedding's dropout
    if stages == 1 or not first:  # §4.3: norm, output layer's input, and logits in float32
        total += 4 * sb * model.hidden / (split.tensor if split.sequence_parallel else 1)
        total += 4 * sb * model.vocabulary / split.tensor
    return total
