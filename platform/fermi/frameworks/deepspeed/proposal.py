"""Proposes what is left empty: the rest of a split, the lowest usual ZeRO stage of which the smallest GPU can hold its
part, and the batch sizes.

Stage 2 is the lowest that is proposed: it moves no more bytes than data parallelism without ZeRO does (ZeRO paper, §7),
and is the requirement document's (004).
"""

from typing import Any

from fermi.frameworks._planning import propose_data_parallel
from fermi.frameworks.deepspeed import config, keys, split
from fermi.frameworks.deepspeed.batch import TrainBatch, solve_batch
from fermi.jobs import memory, options, recipes
from fermi.jobs.spec import JobSpec, Problem, Proposal
from fermi.schema import humanize

_STAGE_FIELD = "distributedConfig.options.zeroStage"
_BATCH_FIELD = "distributedConfig.options.trainBatchSize"


def propose(spec: JobSpec) -> Proposal:
    first = _propose_data_degree(spec) or propose_data_parallel(spec)
    if options.find_problems(spec, config.OPTIONS, leave_out=("config",)) or keys.find_problems(spec):
        return first
    chosen: dict[str, Any] = {}
    reasons = [*first.reasons, *_propose_stage(spec, chosen), *_propose_batch(spec, chosen)]
    return Proposal(first.strategy, chosen, tuple(reasons))


def estimate_state_gib(spec: JobSpec, stage: int, parameters: int, *, offload_parameters: bool = False) -> float:
    """Return the GiB of state on each GPU, with the optimizer's where the job has it; as if tensor and pipeline
    parallelism cut the model evenly, though embeddings are whole on the ranks of the first stage."""
    at = split.read_split(spec)
    world, parameters = at.data, -(-parameters // at.ranks_per_model)
    offloaded = stage > 0 and options.read_option(spec, config.OPTIONS, "offloadOptimizer") == "cpu"
    return memory.compute_needed_gib(
        parameters,
        weights=0 if offload_parameters else world if stage == 3 else 1,
        gradients=world if stage >= 2 else 1,
        optimizer=0 if offloaded else world if stage else 1,
    )


def _propose_data_degree(spec: JobSpec) -> Proposal | None:
    """Propose the processes that a split leaves as data parallelism."""
    at = split.read_split(spec)
    if at.ranks_per_model == 1 or "dataParallel" in spec.strategy or split.find_problems(spec):
        return None
    params = {"data": at.data, "worldSize": spec.world_size, "tensor": at.tensor, "pipeline": at.pipeline}
    return Proposal(
        {"dataParallel": at.data}, {}, (Problem(split.STRATEGY_FIELD, "PROPOSED_DATA_PARALLEL_REST", params),)
    )


def _propose_stage(spec: JobSpec, chosen: dict[str, Any]) -> list[Problem]:
    if "zeroStage" in spec.options:
        return []
    parameters, usable = recipes.count_model_parameters(spec), memory.compute_usable_gib(spec.nodes)
    offload = spec.options.get("offloadParameters")
    chosen["zeroStage"] = 2
    if (pipeline := split.read_split(spec).pipeline) > 1:
        chosen["zeroStage"] = 1
        return [Problem(_STAGE_FIELD, "PROPOSED_STAGE_FOR_PIPELINE", {"stage": 1, "pipeline": pipeline})]
    if offload == "cpu":
        chosen["zeroStage"] = 3
        return [Problem(_STAGE_FIELD, "PROPOSED_STAGE_FOR_OFFLOAD", {"stage": 3})]
    if parameters is None:
        return [Problem(_STAGE_FIELD, "PROPOSED_STAGE_USUAL", {"stage": 2})]
    params: dict[str, Any] = {"size": humanize.format_count(parameters), "usable": memory.format_gib(usable)}
    if estimate_state_gib(spec, 2, parameters) > usable:
        chosen["zeroStage"] = 3
        params["instead"] = memory.format_gib(estimate_state_gib(spec, 2, parameters))
    stage = chosen["zeroStage"]
    params |= {"stage": stage, "needed": memory.format_gib(estimate_state_gib(spec, stage, parameters))}
    reasons = [Problem(_STAGE_FIELD, "PROPOSED_STAGE_SPLITS_WEIGHTS" if stage == 3 else "PROPOSED_STAGE", params)]
    if estimate_state_gib(spec, stage, parameters) > usable and offload is None:
        chosen["offloadParameters"] = "cpu"
        reasons.append(Problem("distributedConfig.options.offloadParameters", "PROPOSED_WEIGHTS_ON_CPU", params))
    return reasons


def _propose_batch(spec: JobSpec, chosen: dict[str, Any]) -> list[Problem]:
    batch = solve_batch(spec)
    if not isinstance(batch, TrainBatch):
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
    params = {
        "train": batch.train,
        "micro": batch.micro,
        "steps": batch.accumulation,
        "worldSize": split.read_split(spec).data,
    }
    return [Problem(_BATCH_FIELD, "PROPOSED_BATCH", params)]
