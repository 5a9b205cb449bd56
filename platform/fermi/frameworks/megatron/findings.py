"""What Megatron-LM with its own optimizer and with DeepSpeed's alike report of one job."""

from fermi.frameworks.megatron import arguments, cost, memory, search
from fermi.frameworks.megatron.request import OPTIONS, OPTIONS_FIELD, STRATEGY_FIELD, MegatronRequest
from fermi.frameworks.megatron.split import Split
from fermi.frameworks.parallelism import Strategy, format_degrees
from fermi.jobs import effective_batch, gpus, options
from fermi.jobs.spec import JobSpec, Problem
from fermi.schema import humanize

OUT_OF_MEMORY = "MEGATRON_OUT_OF_MEMORY"

BUBBLE_WARNING_SHARE = 0.25
"""Share of a step in the pipeline's bubble from which on the user is warned."""


def check_state_memory(request: MegatronRequest, split: Split) -> list[Problem]:
    """Return the problem of weights, gradients and optimizer that alone are more than the GPU has: these are exact."""
    taken = memory.estimate_memory(request, split).state / 2**30
    over = request.cluster.gpu_known and taken > request.cluster.gpu.memory
    return [build_out_of_memory(request, split)] if over else []


def find_warnings(request: MegatronRequest, split: Split) -> list[Problem]:
    found = []
    if memory.estimate_memory(request, split).total > memory.compute_usable_bytes(request):
        found.append(build_out_of_memory(request, split))
    if (share := cost.compute_bubble_share(split)) > BUBBLE_WARNING_SHARE:
        params = {"share": f"{share:.0%}", "pipeline": split.pipeline, "microBatches": split.micro_batches}
        found.append(Problem(f"{STRATEGY_FIELD}.pipelineParallel", "MEGATRON_BUBBLE", params))
    return found


def suggest_splits(request: MegatronRequest, problems: list[Problem]) -> list[Strategy]:
    """Return the strategies nearest to degrees that break a rule. Too little memory is no such rule: it is too little
    for all."""
    broken = any(one.field.startswith(STRATEGY_FIELD) and one.code != OUT_OF_MEMORY for one in problems)
    return search.find_nearest_strategies(request) if broken else []


def needs_one_connection(split: Split, gpu_type: str) -> bool:
    """Return whether CUDA needs one connection. Megatron relies on the order in which kernels are queued
    (arguments.py:951); Blackwell keeps it by itself."""
    return (split.tensor > 1 or split.context > 1) and gpus.find_gpu(gpu_type).capability < 10


def check_connections(spec: JobSpec, split: Split) -> list[Problem]:
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    if spec.env.get(name, "1") == "1" or not any(needs_one_connection(split, node.gpu_type) for node in spec.nodes):
        return []
    params = {"name": name, "found": spec.env[name], "allowed": "1", "tensor": split.tensor, "context": split.context}
    return [Problem(f"env.{name}", "MEGATRON_ONE_CONNECTION", params)]


def check_positions(spec: JobSpec, request: MegatronRequest) -> list[Problem]:
    if (found := arguments.read_max_positions(spec, request)) >= request.model.sequence:  # arguments.py:830
        return []
    params = {"found": found, "sequence": request.model.sequence}
    return [Problem(f"{OPTIONS_FIELD}.maxPositionEmbeddings", "MEGATRON_POSITIONS_TOO_FEW", params)]


def check_precision(spec: JobSpec) -> list[Problem]:
    """Return the problem of two different half precisions (arguments.py:703)."""
    option, stated = options.read_option(spec, OPTIONS, "precision"), spec.hyperparameters.get("dtype", "auto")
    if spec.entrypoint is not None or "auto" in (option, stated) or option == stated:
        return []
    params = {"option": option, "hyperparameter": stated}
    return [Problem(f"{OPTIONS_FIELD}.precision", "PRECISIONS_DIFFER", params)]


def build_out_of_memory(request: MegatronRequest, split: Split) -> Problem:
    taken, found = memory.estimate_memory(request, split), search.find_best_split(request)
    params = {
        **{name: humanize.format_bytes(getattr(taken, name)) for name in ("total", "state", "activations")},
        "gpu": _format_gpu_memory(request),
        "usable": humanize.format_bytes(memory.compute_usable_bytes(request)),
        "gpus": (found.would_fit if found else 0) or "–",
    }
    return Problem(STRATEGY_FIELD, OUT_OF_MEMORY, params)


def _format_gpu_memory(request: MegatronRequest) -> str:
    """Return the memory of the smallest GPU."""
    return humanize.format_bytes(request.cluster.gpu.memory * 2**30)


def explain_split(request: MegatronRequest, result: search.SearchResult) -> list[Problem]:
    """Return why this split was chosen, for the user."""
    split, cluster = result.split, request.cluster
    size = {
        "size": humanize.format_count(memory.count_parameters(request.model)),
        "needed": humanize.format_bytes(memory.estimate_memory(request, split).total),
        "usable": humanize.format_bytes(memory.compute_usable_bytes(request)),
        "gpu": _format_gpu_memory(request),
    }
    if not result.fits:
        params = {**size, "gpus": result.would_fit or "–", "worldSize": cluster.world}
        return [Problem(STRATEGY_FIELD, "MEGATRON_NOTHING_FITS", params)]
    params = {"split": format_degrees(split.strategy), "fits": result.fits}
    said = [Problem(STRATEGY_FIELD, "MEGATRON_FASTEST", params), Problem(STRATEGY_FIELD, "MEGATRON_FITS", size)]
    if split.tensor > 1:
        params = {"tensor": split.tensor, "gpus": min(cluster.nodes)}
        said.append(Problem(f"{STRATEGY_FIELD}.tensorParallel", "MEGATRON_TENSOR_INSIDE_NODE", params))
    if split.pipeline > 1:
        params = {"pipeline": split.pipeline, "share": f"{cost.compute_bubble_share(split):.0%}",
                  "microBatches": split.micro_batches}  # fmt: skip
        said.append(Problem(f"{STRATEGY_FIELD}.pipelineParallel", "MEGATRON_PIPELINE_BUBBLE", params))
    params = {"global": split.global_batch, "micro": split.micro, "microBatches": split.micro_batches,
              "data": split.data}  # fmt: skip
    return [*said, Problem(f"{OPTIONS_FIELD}.globalBatchSize", "MEGATRON_BATCH", params)]


def build_effective_batch(spec: JobSpec, split: Split) -> effective_batch.EffectiveBatch:
    """Return the effective batch. A user's own script gets the learning rate as it is, without scaling."""
    told = {"scaling": "none"} if spec.entrypoint else {}
    return effective_batch.build_effective_batch(spec, split.micro, split.data, split.micro_batches, **told)
