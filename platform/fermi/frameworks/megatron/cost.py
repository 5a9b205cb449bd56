"""How long an optimizer step takes, in seconds: good for ranking splits of one model on one set of nodes, not for
promising a speed. What it counts:

* matrices: 24 b s h² (1 + s/6h) floating-point operations per layer forward, twice that backward, once more where a
  layer is recomputed, and the logits on the last stage (Narayanan et al. 2021, §5.1); a GPU reaches half its peak, less
  when a matrix is small;
* tensor parallelism: four all-reduces per layer and micro-batch (six with full recomputation; §2.3);
* pipeline: a bubble of (p - 1)/v micro-batches (§2.2), and each chunk's activations to the next stage and back;
* context and expert parallelism: keys and values around the ring, tokens to their experts and back;
* data parallelism: gradients reduce-scattered and weights gathered once a step; nothing of it overlapped.

Groups inside a node talk at `INSIDE`, across nodes at `NODES`, across zones at `ZONES`: typical figures (NVLink, a
200 Gbit/s port per GPU, a shared line between sites), since nothing is known of the real ones.
"""

from fermi.frameworks.megatron import memory
from fermi.frameworks.megatron.request import ClusterShape, MegatronRequest
from fermi.frameworks.megatron.split import Split

PEAK_FLOPS = {6.0: 19e12, 7.0: 125e12, 7.5: 65e12, 8.0: 312e12, 8.6: 125e12, 8.9: 181e12, 9.0: 989e12, 10.0: 2250e12}
"""By compute capability: dense operations per second in half precision, NVIDIA's data sheets."""

REACHED_PEAK_SHARE = 0.5  # of the peak, by large matrices
HALF_REACHED_ELEMENTS = 1 << 19  # elements of a rank's share of activations at which half of that is reached
NODE_BANDWIDTH, CROSS_NODE_BANDWIDTH, CROSS_ZONE_BANDWIDTH = 200e9, 20e9, 1e9  # bytes per second and GPU, one way
LATENCY_SECONDS = 2e-5  # seconds per collective


def estimate_step_seconds(request: MegatronRequest, split: Split) -> float:
    """Return the seconds of one optimizer step."""
    batch = (
        _matrix_seconds(request, split)
        + _layer_traffic_seconds(request, split)
        + _pipeline_traffic_seconds(request, split)
    )
    bubble = (split.pipeline - 1) / split.virtual
    return (split.micro_batches + bubble) * batch + _data_parallel_seconds(request, split)


def compute_bubble_share(split: Split) -> float:
    """Return the share of a step's time in which the pipeline fills and drains (Narayanan et al. 2021, §2.2)."""
    waiting = (split.pipeline - 1) / split.virtual
    return waiting / (split.micro_batches + waiting)


def find_bandwidth(cluster: ClusterShape, span: int) -> float:
    """Return the bandwidth of the slowest of the groups of `span` neighbouring ranks, in bytes per second."""
    if not any(size % span for size in cluster.nodes):
        return NODE_BANDWIDTH
    return (
        CROSS_ZONE_BANDWIDTH
        if len(cluster.zones) > 1 and any(size % span for size in cluster.zones)
        else CROSS_NODE_BANDWIDTH
    )


def _count_tokens(request: MegatronRequest, split: Split) -> float:
    """Return the tokens of a micro-batch, on one rank."""
    return request.model.sequence / split.context * split.micro


def _activation_bytes(request: MegatronRequest) -> int:
    """Return the bytes of an activation."""
    return 4 if request.cluster.dtype == "float32" else 2


def _matrix_seconds(request: MegatronRequest, split: Split) -> float:
    """Return the seconds of a micro-batch, forward and backward, on the last stage, which is the slowest."""
    model, tokens = request.model, _count_tokens(request, split)
    h, s, routed = model.hidden, model.sequence, memory.EXPERTS_PER_TOKEN if model.experts else 1
    attention = 4 * tokens * s * h
    forward = tokens * h * h * (8 + 16 * routed) + attention
    layer = 3 * forward + {"none": 0, "selective": attention, "full": forward}[split.recompute]
    work = (layer * model.layers / split.pipeline + 6 * tokens * h * model.vocabulary) / split.tensor
    share = tokens * h / split.tensor
    speed = (
        PEAK_FLOPS.get(request.cluster.gpu.capability, PEAK_FLOPS[7.0])
        * REACHED_PEAK_SHARE
        * share
        / (share + HALF_REACHED_ELEMENTS)
    )
    return work / speed * (2 if _activation_bytes(request) == 4 else 1)


def _layer_traffic_seconds(request: MegatronRequest, split: Split) -> float:
    """Return the seconds of tensor, context and expert parallel traffic of a micro-batch's layers on one stage."""
    activations = _count_tokens(request, split) * request.model.hidden * _activation_bytes(request)
    layer, t, c, e = 0.0, split.tensor, split.context, split.expert
    if t > 1:
        times = 6 if split.recompute == "full" else 4
        layer += times * (2 * (t - 1) / t * activations / find_bandwidth(request.cluster, t) + LATENCY_SECONDS)
    if c > 1:
        ring = find_bandwidth(request.cluster, t * c)
        layer += 3 * (c - 1) * (2 * activations / t / ring + LATENCY_SECONDS)
    if e > 1:
        routed = memory.EXPERTS_PER_TOKEN * activations / t * (e - 1) / e
        layer += 4 * (routed / find_bandwidth(request.cluster, t * e) + LATENCY_SECONDS)
    return layer * request.model.layers / split.pipeline


def _pipeline_traffic_seconds(request: MegatronRequest, split: Split) -> float:
    if split.pipeline == 1:
        return 0.0
    sent = _count_tokens(request, split) * request.model.hidden * _activation_bytes(request)
    sent /= split.tensor if split.sequence_parallel else 1
    return split.virtual * 2 * (sent / find_bandwidth(request.cluster, request.cluster.world) + LATENCY_SECONDS)


def _data_parallel_seconds(request: MegatronRequest, split: Split) -> float:
    ranks = split.data * split.context
    if ranks == 1:
        return 0.0
    dense, experts = memory.count_stage_parameters(request.model, split)
    gradient = 2 if request.cluster.dtype == "float16" else 4
    splits = split.distributed_optimizer or bool(split.zero)
    sent = gradient + _activation_bytes(request) if splits else 2 * gradient
    if split.zero == 3:  # weights are gathered for every forward and backward pass (ZeRO, §7.2.2)
        sent += _activation_bytes(request) * (2 * split.micro_batches - 1)
    elif split.zero == 2:  # gradients are reduced after every micro-batch
        sent += gradient * (split.micro_batches - 1)
    link = find_bandwidth(request.cluster, split.tensor * ranks)
    shared = dense * (ranks - 1) / ranks + experts * max(0, ranks / split.expert - 1) / max(1, ranks / split.expert)
    return sent * shared / link + 2 * LATENCY_SECONDS
