"""Megatron's rules on a split, each with the line that has it in Megatron-LM 0.16.1; and one that is ours."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fermi.frameworks.megatron.request import OPTIONS_FIELD, STRATEGY_FIELD, MegatronRequest
from fermi.frameworks.megatron.split import Split
from fermi.jobs.spec import Problem


def find_problems(
    request: MegatronRequest, split: Split, nearest: Callable[[], str] = lambda: "–"
) -> Iterator[Problem]:
    """Yield broken rules. `nearest`: returns the valid strategy most like this one as text; called only where a rule is
    broken."""
    found = [*_check_degrees(request, split), *_check_sizes(request, split), *_check_trainer(request, split)]
    if split.data * split.tensor * split.pipeline * split.context == request.cluster.world:
        found += _check_batches(split)
    for problem in found:
        yield replace(problem, params={"nearest": nearest(), **problem.params})


def _check_degrees(request: MegatronRequest, split: Split) -> Iterator[Problem]:
    params: dict[str, Any]
    world, product = request.cluster.world, split.tensor * split.pipeline * split.context
    if world % product:  # arguments.py:317
        params = {"worldSize": world, "product": product, "tensor": split.tensor, "pipeline": split.pipeline,
                  "context": split.context}  # fmt: skip
        yield Problem(STRATEGY_FIELD, "MEGATRON_WORLD_NOT_DIVISIBLE", params)
    elif split.data != world // product:  # arguments.py:328
        params = {"found": split.data, "allowed": world // product, "worldSize": world, "product": product}
        yield Problem(f"{STRATEGY_FIELD}.dataParallel", "MEGATRON_DATA_PARALLEL_DERIVED", params)
    if cramped := [size for size in request.cluster.nodes if size % split.tensor]:  # ours: stay inside a node
        sizes = math.gcd(*request.cluster.nodes)
        params = {"found": split.tensor, "gpus": cramped[0], "allowed": _format_divisors(sizes)}
        yield Problem(f"{STRATEGY_FIELD}.tensorParallel", "MEGATRON_TENSOR_CROSSES_NODES", params)
    if split.virtual > 1 and split.pipeline < 2:  # arguments.py:575
        params = {"found": split.virtual, "pipeline": split.pipeline}
        yield Problem(f"{STRATEGY_FIELD}.virtualPipeline", "MEGATRON_VIRTUAL_NEEDS_PIPELINE", params)
    experts = request.model.experts
    if split.expert > 1 and (not experts or experts % split.expert):  # arguments.py:1027
        params = {"found": split.expert, "experts": experts, "allowed": _format_divisors(experts) if experts else "1"}
        yield Problem(f"{STRATEGY_FIELD}.expertParallel", "MEGATRON_EXPERTS_NOT_DIVISIBLE", params)
    elif world % product == 0 and (world // (split.tensor * split.pipeline)) % split.expert:  # parallel_state.py:792
        ranks = world // (split.tensor * split.pipeline)
        params = {"found": split.expert, "ranks": ranks, "allowed": _format_divisors(ranks)}
        yield Problem(f"{STRATEGY_FIELD}.expertParallel", "MEGATRON_EXPERT_RANKS_NOT_DIVISIBLE", params)


def _check_sizes(request: MegatronRequest, split: Split) -> Iterator[Problem]:
    model = request.model
    if model.heads % split.tensor:  # transformer_config.py:924
        params = {"found": split.tensor, "heads": model.heads, "allowed": _format_divisors(model.heads)}
        yield Problem(f"{STRATEGY_FIELD}.tensorParallel", "MEGATRON_HEADS_NOT_DIVISIBLE", params)
    if model.layers % split.pipeline:  # arguments.py:570
        params = {"found": split.pipeline, "layers": model.layers, "allowed": _format_divisors(model.layers)}
        yield Problem(f"{STRATEGY_FIELD}.pipelineParallel", "MEGATRON_LAYERS_NOT_DIVISIBLE", params)
    elif model.layers // split.pipeline % split.virtual:  # transformer_block.py:177
        share = model.layers // split.pipeline
        params = {"found": split.virtual, "layers": share, "allowed": _format_divisors(share)}
        yield Problem(f"{STRATEGY_FIELD}.virtualPipeline", "MEGATRON_LAYERS_NOT_DIVISIBLE", params)
    if split.context > 1 and split.zero is None and model.sequence % (2 * split.context):  # arguments.py:818
        params = {"found": model.sequence, "context": split.context, "unit": 2 * split.context}
        yield Problem("hyperparameters.sequenceLength", "MEGATRON_SEQUENCE_NOT_DIVISIBLE", params)
    if split.sequence_parallel and split.tensor == 1:  # model_parallel_config.py:411
        yield Problem(f"{OPTIONS_FIELD}.sequenceParallel", "MEGATRON_SEQUENCE_NEEDS_TENSOR", {"found": 1})
    elif split.sequence_parallel and model.sequence % (split.context * split.tensor):  # mappings.py:70
        params = {"found": model.sequence, "ranks": split.context * split.tensor}
        yield Problem(f"{OPTIONS_FIELD}.sequenceParallel", "MEGATRON_SEQUENCE_NOT_SHAREABLE", params)
    if model.experts and split.tensor > 1 and not split.sequence_parallel:  # moe_layer.py:379
        params = {"found": split.tensor, "experts": model.experts}
        yield Problem(f"{OPTIONS_FIELD}.sequenceParallel", "MEGATRON_EXPERTS_NEED_SEQUENCE", params)
    if model.hidden % model.heads:  # arguments.py:814
        nearest = -(-model.hidden // model.heads) * model.heads
        params = {"hidden": model.hidden, "heads": model.heads, "nearest": nearest}
        yield Problem("hyperparameters.hiddenSize", "HIDDEN_NOT_DIVISIBLE_BY_HEADS", params)


def _check_trainer(request: MegatronRequest, split: Split) -> Iterator[Problem]:
    """Yield the reference trainer's own limits: megatron-core's attention for context parallelism is in Transformer
    Engine, and its model is dense."""
    if not request.given.trainer:
        return
    if split.context > 1:
        yield Problem(f"{STRATEGY_FIELD}.contextParallel", "MEGATRON_TRAINER_LACKS", {"found": "contextParallel"})
    if request.model.experts:
        yield Problem(f"{OPTIONS_FIELD}.numExperts", "MEGATRON_TRAINER_LACKS", {"found": "numExperts"})


def _check_batches(split: Split) -> Iterator[Problem]:
    unit = split.micro * split.data
    if split.global_batch % unit:  # num_microbatches_calculator.py:340
        below = split.global_batch // unit * unit
        params = {"found": split.global_batch, "micro": split.micro, "data": split.data, "unit": unit,
                  "nearest": " / ".join(str(size) for size in (below, below + unit) if size)}  # fmt: skip
        yield Problem(f"{OPTIONS_FIELD}.globalBatchSize", "MEGATRON_BATCH_NOT_DIVISIBLE", params)
    elif split.virtual > 1 and split.micro_batches % split.pipeline:  # schedules.py:996, :1008
        unit *= split.pipeline
        below = split.global_batch // unit * unit
        nearest = " / ".join(f"globalBatchSize={size}" for size in (below, below + unit) if size)
        params = {"found": split.micro_batches, "pipeline": split.pipeline, "nearest": nearest}
        yield Problem(f"{STRATEGY_FIELD}.virtualPipeline", "MEGATRON_MICRO_BATCHES_NOT_DIVISIBLE", params)


def _format_divisors(number: int) -> str:
    return ", ".join(str(n) for n in range(1, number + 1) if number % n == 0)
