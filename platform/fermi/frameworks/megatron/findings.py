"""What Megatron-LM with its own optimizer and with DeepSpeed's alike report of one job."""

from fermi.frameworks.megatron import arguments, cost, memory, search
from fermi.frameworks.megatron.request import OPTION, OPTIONS, STRATEGY, Request
from fermi.frameworks.megatron.split import Split
from fermi.frameworks.parallelism import Strategy, words
from fermi.jobs import effective_batch as effective
from fermi.jobs import gpus, options
from fermi.jobs.spec import JobSpec, Problem
from fermi.schema import humanize

OUT_OF_MEMORY = "MEGATRON_OUT_OF_MEMORY"

MUCH_WAITING = 0.25
"""Share of a step in the pipeline's bubble from which on the user is warned."""


def wants_too_much(request: Request, split: Split) -> list[Problem]:
    """Return the problem of weights, gradients and optimizer that alone are more than the GPU has: these are exact."""
    taken = memory.estimate(request, split).state / 2**30
    over = request.cluster.gpu_known and taken > request.cluster.gpu.memory
    return [out_of_memory(request, split)] if over else []


def warnings(request: Request, split: Split) -> list[Problem]:
    found = []
    if memory.estimate(request, split).total > memory.usable(request):
        found.append(out_of_memory(request, split))
    if (share := cost.bubble_share(split)) > MUCH_WAITING:
        params = {"share": f"{share:.0%}", "pipeline": split.pipeline, "microBatches": split.micro_batches}
        found.append(Problem(f"{STRATEGY}.pipelineParallel", "MEGATRON_BUBBLE", params))
    return found


def splits(request: Request, problems: list[Problem]) -> list[Strategy]:
    """Return the strategies nearest to degrees that break a rule. Too little memory is no such rule: it is too little
    for all."""
    broken = any(one.field.startswith(STRATEGY) and one.code != OUT_OF_MEMORY for one in problems)
    return search.nearest(request) if broken else []


def one_connection(split: Split, gpu_type: str) -> bool:
    """Return whether CUDA needs one connection. Megatron relies on the order in which kernels are queued
    (arguments.py:951); Blackwell keeps it by itself."""
    return (split.tensor > 1 or split.context > 1) and gpus.gpu(gpu_type).capability < 10


def connections(spec: JobSpec, split: Split) -> list[Problem]:
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    if spec.env.get(name, "1") == "1" or not any(one_connection(split, node.gpu_type) for node in spec.nodes):
        return []
    params = {"name": name, "found": spec.env[name], "allowed": "1", "tensor": split.tensor, "context": split.context}
    return [Problem(f"env.{name}", "MEGATRON_ONE_CONNECTION", params)]


def positions(spec: JobSpec, request: Request) -> list[Problem]:
    if (found := arguments.positions(spec, request)) >= request.model.sequence:  # arguments.py:830
        return []
    params = {"found": found, "sequence": request.model.sequence}
    return [Problem(f"{OPTION}.maxPositionEmbeddings", "MEGATRON_POSITIONS_TOO_FEW", params)]


def precision(spec: JobSpec) -> list[Problem]:
    """Return the problem of two different half precisions (arguments.py:703)."""
    option, stated = options.value(spec, OPTIONS, "precision"), spec.hyperparameters.get("dtype", "auto")
    if spec.entrypoint is not None or "auto" in (option, stated) or option == stated:
        return []
    params = {"option": option, "hyperparameter": stated}
    return [Problem(f"{OPTION}.precision", "PRECISIONS_DIFFER", params)]


def out_of_memory(request: Request, split: Split) -> Problem:
    taken, found = memory.estimate(request, split), search.best(request)
    params = {
        **{name: humanize.size(getattr(taken, name)) for name in ("total", "state", "activations")},
        "gpu": _gpu(request),
        "usable": humanize.size(memory.usable(request)),
        "gpus": (found.would_fit if found else 0) or "–",
    }
    return Problem(STRATEGY, OUT_OF_MEMORY, params)


def _gpu(request: Request) -> str:
    """Return the memory of the smallest GPU."""
    return humanize.size(request.cluster.gpu.memory * 2**30)


def reasons(request: Request, found: search.Found) -> list[Problem]:
    """Return why this split was chosen, for the user."""
    split, cluster = found.split, request.cluster
    size = {
        "size": humanize.count(memory.parameters(request.model)),
        "needed": humanize.size(memory.estimate(request, split).total),
        "usable": humanize.size(memory.usable(request)),
        "gpu": _gpu(request),
    }
    if not found.fits:
        params = {**size, "gpus": found.would_fit or "–", "worldSize": cluster.world}
        return [Problem(STRATEGY, "MEGATRON_NOTHING_FITS", params)]
    params = {"split": words(split.strategy), "fits": found.fits}
    said = [Problem(STRATEGY, "MEGATRON_FASTEST", params), Problem(STRATEGY, "MEGATRON_FITS", size)]
    if split.tensor > 1:
        params = {"tensor": split.tensor, "gpus": min(cluster.nodes)}
        said.append(Problem(f"{STRATEGY}.tensorParallel", "MEGATRON_TENSOR_INSIDE_NODE", params))
    if split.pipeline > 1:
        params = {"pipeline": split.pipeline, "share": f"{cost.bubble_share(split):.0%}",
                  "microBatches": split.micro_batches}  # fmt: skip
        said.append(Problem(f"{STRATEGY}.pipelineParallel", "MEGATRON_PIPELINE_BUBBLE", params))
    params = {"global": split.global_batch, "micro": split.micro, "microBatches": split.micro_batches,
              "data": split.data}  # fmt: skip
    return [*said, Problem(f"{OPTION}.globalBatchSize", "MEGATRON_BATCH", params)]


def effective_batch(spec: JobSpec, split: Split) -> effective.Batch:
    """Return the effective batch. A user's own script gets the learning rate as it is, without scaling."""
    told = {"scaling": "none"} if spec.entrypoint else {}
    return effective.of(spec, split.micro, split.data, split.micro_batches, **told)
