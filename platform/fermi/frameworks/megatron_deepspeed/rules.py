"""What DeepSpeed 0.19.8 and Megatron-DeepSpeed (its main branch of July 2025) refuse beside Megatron's own rules, with
the lines that have it; and what they would train wrongly without a word."""

from collections.abc import Callable, Iterator
from typing import Any

from fermi.frameworks.megatron.request import OPTIONS_FIELD, STRATEGY_FIELD, MegatronRequest
from fermi.frameworks.megatron.split import Split
from fermi.jobs.spec import JobSpec, Problem

REFUSED_ARGUMENTS = {
    "sequence-parallel": "MEGATRON_DEEPSPEED_SEQUENCE",
    "use-distributed-optimizer": "MEGATRON_DEEPSPEED_OPTIMIZER_TWICE",
    "num-layers-per-virtual-pipeline-stage": "MEGATRON_DEEPSPEED_INTERLEAVED",
}
"""Arguments that do not go with DeepSpeed. Sequence parallelism: LayerNorms' gradients would have to be summed over the
tensor-parallel ranks, which Megatron does after the backward pass unless DeepSpeed runs (megatron/training.py:731)."""


def find_problems(request: MegatronRequest, split: Split, nearest: Callable[[], str]) -> Iterator[Problem]:
    """Yield broken rules. `nearest`: returns the valid strategy most like this one as text."""
    params: dict[str, Any]
    if split.pipeline > 1 and (split.zero or 0) > 1:  # deepspeed/runtime/pipe/engine.py:73
        params = {"found": split.zero, "pipeline": split.pipeline, "nearest": 1}
        yield Problem(f"{OPTIONS_FIELD}.zeroStage", "MEGATRON_DEEPSPEED_PIPELINE_STAGE", params)
    if split.context == 1:
        return
    if split.tensor * split.pipeline > 1:  # megatron/core/parallel_state.py:146
        params = {"found": split.context, "tensor": split.tensor, "pipeline": split.pipeline, "nearest": nearest()}
        yield Problem(f"{STRATEGY_FIELD}.contextParallel", "MEGATRON_DEEPSPEED_CONTEXT_ALONE", params)
    for what, size in (("heads", request.model.heads), ("sequenceLength", request.model.sequence)):
        if size % split.context:  # deepspeed/sequence/layer.py: heads and positions are exchanged among the ranks
            params = {"found": split.context, "what": what, "size": size, "nearest": nearest()}
            yield Problem(f"{STRATEGY_FIELD}.contextParallel", "MEGATRON_DEEPSPEED_CONTEXT_NOT_DIVISIBLE", params)


def find_refused_arguments(spec: JobSpec) -> list[Problem]:
    args = spec.entrypoint.args if spec.entrypoint else ()
    names = [word.removeprefix("--").partition("=")[0] for word in args if word.startswith("--")]
    return [
        Problem("entrypoint.args", REFUSED_ARGUMENTS[name], {"found": f"--{name}"})
        for name in names
        if name in REFUSED_ARGUMENTS
    ]
