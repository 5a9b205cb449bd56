"""Megatron-LM: the model itself is split, by tensor inside its layers and by pipeline between them.

request.py    what the job says: sizes, GPUs, what the user settled
split.py      one complete way to split
rules.py      which splits Megatron refuses
memory.py     what a split takes on a GPU            cost.py    how long a step takes
search.py     the fastest split that fits            arguments.py    what Megatron is launched with
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fermi.launch import environment, figures, gpus, network, options, recipes
from fermi.launch.frameworks._plans import gang
from fermi.launch.frameworks.base import Info
from fermi.launch.frameworks.megatron import arguments, cost, memory, rules, search
from fermi.launch.frameworks.megatron.request import OPTION, OPTIONS, STRATEGY, Request, read
from fermi.launch.frameworks.megatron.split import Split, as_given
from fermi.launch.frameworks.splits import words
from fermi.launch.ranks import Placement
from fermi.launch.spec import JobSpec, Late, Plan, Problem, Proposal, Value

__all__ = ["INFO", "OPTIONS", "PRELOAD", "plan", "problems", "propose", "splits", "warnings"]

INFO = Info(
    label="Megatron-LM",
    parallelism=("tensor", "pipeline", "data"),
    model_size=(100_000_000_000, None),
    packages=("megatron-core",),
    needs_cuda=True,
)

PRELOAD = ("torch", "numpy", "torch.distributed", "torch._dynamo")
"""Not megatron.core: importing it may touch CUDA, and a process that is to be forked must not have."""

MUCH_WAITING = 0.25
"""Share of a step in the pipeline's bubble from which on the user is warned."""


def problems(spec: JobSpec) -> list[Problem]:
    """As if the proposal had been given. Where what is given leaves no valid split, its own broken rules are named."""
    request = read(spec)
    if isinstance(request, list):
        return request
    split = _settled(request)
    said = {problem.code for problem in recipes.problems(spec)}  # the recipe knows one of the rules, too
    broken = rules.problems(request, split, lambda: next(map(words, search.nearest(request, most=1)), "–"))
    found = [problem for problem in broken if problem.code not in said]
    found += _positions(spec, request) + _precision(spec) + _connections(spec, split) + arguments.own_arguments(spec)
    if not found and request.cluster.gpu_known:
        taken = memory.estimate(request, split).state / 2**30
        if taken > request.cluster.gpu.memory:
            found.append(_out_of_memory(request, split))
    return found


def warnings(spec: JobSpec) -> list[Problem]:
    request = read(spec)
    if isinstance(request, list) or problems(spec):
        return []
    split, found = _settled(request), []
    if memory.estimate(request, split).total > memory.usable(request):
        found.append(_out_of_memory(request, split))
    if (share := cost.bubble_share(split)) > MUCH_WAITING:
        params = {"share": f"{share:.0%}", "pipeline": split.pipeline, "microBatches": split.micro_batches}
        found.append(Problem(f"{STRATEGY}.pipelineParallel", "MEGATRON_BUBBLE", params))
    return found


def propose(spec: JobSpec) -> Proposal:
    request = read(spec)
    found = None if isinstance(request, list) else search.best(request)
    if isinstance(request, list) or found is None:
        return Proposal()
    split = found.split
    strategy = {name: value for name, value in split.strategy.items() if name not in spec.strategy}
    chosen = {name: value for name, value in split.options.items() if name not in spec.options}
    return Proposal(strategy, chosen, tuple(_reasons(request, found)))


def splits(spec: JobSpec) -> list[Mapping[str, int]]:
    request = read(spec)
    if isinstance(request, list) or not any(one.field.startswith(STRATEGY) for one in problems(spec)):
        return []
    return search.nearest(request)


def plan(spec: JobSpec) -> Plan:
    request = read(spec)
    assert isinstance(request, Request)
    split = _settled(request)
    given = arguments.arguments(spec, request, split)
    files: dict[str, Value] = {
        "megatron_config.yaml": arguments.config_file(spec, request, split),
        "megatron_args.txt": arguments.args_file(given),
    }
    env: dict[str, Value] = {
        **network.torch_env(spec, environment.communication_backend(spec)),
        "FERMI_MEGATRON_CONFIG": (Late.FILES_DIR, "/megatron_config.yaml"),
        "FERMI_MEGATRON_ARGS": (Late.FILES_DIR, "/megatron_args.txt"),
    }

    def node_env(at: Placement) -> dict[str, Value]:
        one = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if _one_connection(split, at.node.gpu_type) else {}
        return {**env, **one}

    return gang(spec, _command(spec, given), files=files, preload=PRELOAD, node_env=node_env)


def _settled(request: Request) -> Split:
    """What will run: the user's degrees, and the proposal's where the user gave none."""
    found = search.best(request)
    return found.split if found else as_given(request)


def _command(spec: JobSpec, given: dict[str, Any]) -> tuple[Value, ...]:
    """The trainer, with Megatron's names for what they name; or the user's script, with our arguments before its
    own."""
    if spec.entrypoint is None:
        left = {**arguments.NAMES, **dict.fromkeys(arguments.SIZES)}
        rest = {name: value for name, value in spec.hyperparameters.items() if name not in left}
        return recipes.command(replace(spec, hyperparameters=rest), "fermi.train.train_megatron", given)
    own = spec.entrypoint
    appended = arguments.words(given) if options.value(spec, OPTIONS, "appendArguments") else []
    return recipes.command(replace(spec, entrypoint=replace(own, args=(*appended, *own.args))), "", {})


def _one_connection(split: Split, gpu_type: str) -> bool:
    """Megatron relies on the order in which kernels are queued (arguments.py:951); Blackwell keeps it by itself."""
    return (split.tensor > 1 or split.context > 1) and gpus.gpu(gpu_type).capability < 10


def _connections(spec: JobSpec, split: Split) -> list[Problem]:
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    if spec.env.get(name, "1") == "1" or not any(_one_connection(split, node.gpu_type) for node in spec.nodes):
        return []
    params = {"name": name, "found": spec.env[name], "allowed": "1", "tensor": split.tensor, "context": split.context}
    return [Problem(f"env.{name}", "MEGATRON_ONE_CONNECTION", params)]


def _positions(spec: JobSpec, request: Request) -> list[Problem]:
    if (found := arguments.positions(spec, request)) >= request.model.sequence:  # arguments.py:830
        return []
    params = {"found": found, "sequence": request.model.sequence}
    return [Problem(f"{OPTION}.maxPositionEmbeddings", "MEGATRON_POSITIONS_TOO_FEW", params)]


def _precision(spec: JobSpec) -> list[Problem]:
    """Either half precision, never both (arguments.py:703)."""
    option, stated = options.value(spec, OPTIONS, "precision"), spec.hyperparameters.get("dtype", "auto")
    if spec.entrypoint is not None or "auto" in (option, stated) or option == stated:
        return []
    params = {"option": option, "hyperparameter": stated}
    return [Problem(f"{OPTION}.precision", "PRECISIONS_DIFFER", params)]


def _out_of_memory(request: Request, split: Split) -> Problem:
    taken, found = memory.estimate(request, split), search.best(request)
    params = {
        **{name: figures.size(getattr(taken, name)) for name in ("total", "state", "activations")},
        "gpu": _gpu(request),
        "usable": figures.size(memory.usable(request)),
        "gpus": (found.would_fit if found else 0) or "–",
    }
    return Problem(STRATEGY, "MEGATRON_OUT_OF_MEMORY", params)


def _gpu(request: Request) -> str:
    """The memory of the smallest one."""
    return figures.size(request.cluster.gpu.memory * 2**30)


def _reasons(request: Request, found: search.Found) -> list[Problem]:
    """Why this split, for the person who gave it over to us."""
    split, cluster = found.split, request.cluster
    size = {
        "size": figures.count(memory.parameters(request.model)),
        "needed": figures.size(memory.estimate(request, split).total),
        "usable": figures.size(memory.usable(request)),
        "gpu": _gpu(request),
    }
    if not found.fits:
        params = {**size, "gpus": found.would_fit or "–", "worldSize": cluster.world}
        return [Problem(STRATEGY, "MEGATRON_NOTHING_FITS", params)]
    params = {"split": words(split.strategy), "fits": found.fits}
    reasons = [Problem(STRATEGY, "MEGATRON_FASTEST", params), Problem(STRATEGY, "MEGATRON_FITS", size)]
    if split.tensor > 1:
        params = {"tensor": split.tensor, "gpus": min(cluster.nodes)}
        reasons.append(Problem(f"{STRATEGY}.tensorParallel", "MEGATRON_TENSOR_INSIDE_NODE", params))
    if split.pipeline > 1:
        params = {"pipeline": split.pipeline, "share": f"{cost.bubble_share(split):.0%}",
                  "microBatches": split.micro_batches}  # fmt: skip
        reasons.append(Problem(f"{STRATEGY}.pipelineParallel", "MEGATRON_PIPELINE_BUBBLE", params))
    params = {"global": split.global_batch, "micro": split.micro, "microBatches": split.micro_batches,
              "data": split.data}  # fmt: skip
    return [*reasons, Problem(f"{OPTION}.globalBatchSize", "MEGATRON_BATCH", params)]
