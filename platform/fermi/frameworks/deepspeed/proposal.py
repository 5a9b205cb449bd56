"""Proposes what is left empty: the rest of a split, the lowest usual ZeRO stage of which the smallest GPU can hold its
part, and the batch sizes.

Stage 2 is the lowest that is proposed: it moves no more bytes than data parallelism without ZeRO does (ZeRO paper, §7),
and is the requirement document's (004).
"""

from typing import Any

from fermi.frameworks._planning import data_parallel
from fermi.frameworks.deepspeed import config, keys, split
from fermi.frameworks.deepspeed.batch import Batch, solve
from fermi.jobs import memory, options, recipes
from fermi.jobs.spec import JobSpec, Problem, Proposal
from fermi.schema import humanize

_STAGE = "distributedConfig.options.zeroStage"
_BATCH = "distributedConfig.options.trainBatchSize"


def propose(spec: JobSpec) -> Proposal:
    first = _rest(spec) or data_parallel(spec)
    if options.problems(spec, config.OPTIONS, leave_out=("config",)) or keys.problems(spec):
        return first
    chosen: dict[str, Any] = {}
    reasons = [*first.reasons, *_stage(spec, chosen), *_batch(spec, chosen)]
    return Proposal(first.strategy, chosen, tuple(reasons))


def needed(spec: JobSpec, stage: int, parameters: int, *, offload_parameters: bool = False) -> float:
    """Return the GiB of state on each GPU, with the optimizer's where the job has it; as if tensor and pipeline
    parallelism cut the model evenly, though embeddings are whole on the ranks of the first stage."""
    at = split.of(spec)
    world, parameters = at.data, -(-parameters // at.ranks_per_model)
    offloaded = stage > 0 and options.value(spec, config.OPTIONS, "offloadOptimizer") == "cpu"
    return memory.needed(
        parameters,
        weights=0 if offload_parameters else world if stage == 3 else 1,
        gradients=world if stage >= 2 else 1,
        optimizer=0 if offloaded else world if stage else 1,
    )


def _rest(spec: JobSpec) -> Proposal | None:
    """Propose the processes that a split leaves as data parallelism."""
    at = split.of(spec)
    if at.ranks_per_model == 1 or "dataParallel" in spec.strategy or split.problems(spec):
        return None
    params = {"data": at.data, "worldSize": spec.world_size, "tensor": at.tensor, "pipeline": at.pipeline}
    return Proposal({"dataParallel": at.data}, {}, (Problem(split.STRATEGY, "PROPOSED_DATA_PARALLEL_REST", params),))


def _stage(spec: JobSpec, chosen: dict[str, Any]) -> list[Problem]:
    if "zeroStage" in spec.options:
        return []
    parameters, usable = recipes.parameters(spec), memory.usable(spec.nodes)
    offload = spec.options.get("offloadParameters")
    chosen["zeroStage"] = 2
    if (pipeline := split.of(spec).pipeline) > 1:
        chosen["zeroStage"] = 1
        return [Problem(_STAGE, "PROPOSED_STAGE_FOR_PIPELINE", {"stage": 1, "pipeline": pipeline})]
    if offload == "cpu":
        chosen["zeroStage"] = 3
        return [Problem(_STAGE, "PROPOSED_STAGE_FOR_OFFLOAD", {"stage": 3})]
    if parameters is None:
        return [Problem(_STAGE, "PROPOSED_STAGE_USUAL", {"stage": 2})]
    params: dict[str, Any] = {"size": humanize.count(parameters), "usable": memory.shown(usable)}
    if needed(spec, 2, parameters) > usable:
        chosen["zeroStage"] = 3
        params["instead"] = memory.shown(needed(spec, 2, parameters))
    stage = chosen["zeroStage"]
    params |= {"stage": stage, "needed": memory.shown(needed(spec, stage, parameters))}
    reasons = [Problem(_STAGE, "PROPOSED_STAGE_SPLITS_WEIGHTS" if stage == 3 else "PROPOSED_STAGE", params)]
    if needed(spec, stage, parameters) > usable and offload is None:
        chosen["offloadParameters"] = "cpu"
        reasons.append(Problem("distributedConfig.options.offloadParameters", "PROPOSED_WEIGHTS_ON_CPU", params))
    return reasons


def _batch(spec: JobSpec, chosen: dict[str, Any]) -> list[Problem]:
    batch = solve(spec)
    if not isinstance(batch, Batch):
        return []
    names = ("trainBatchSize", "microBatchSize", "gradientAccumulationSteps")
    left = {
        name: value
        for name, value in zip(names, (batch.train, batch.micro, batch.accumulation), strict=True)
        if name not in spec.options and options.is_valid(value, config.OPTIONS["properties"][name])
    }
    if not left:
        return []
    chosen |= left
    params = {"train": batch.train, "micro": batch.micro, "steps": batch.accumulation, "worldSize": split.of(spec).data}
    return [Problem(_BATCH, "PROPOSED_BATCH", params)]
