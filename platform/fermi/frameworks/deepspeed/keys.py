"""Which keys of DeepSpeed's own configuration a user may add, with the types that DeepSpeed 0.19 takes.

DeepSpeed refuses keys that it does not know below `zero_optimization`, but ignores them at the top level, and `"auto"`
means something only inside Hugging Face's Trainer: so what is not written down here is refused.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fermi.jobs import options
from fermi.jobs.spec import JobSpec, Problem
from fermi.schema import suggestions

_ON_OFF = {"type": "boolean"}
_NUMBER = {"type": "number", "exclusiveMinimum": 0, "maximum": 1e12}


def _integer(low: int, high: int = 10**12) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high}


def _object(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


CONFIG: dict[str, Any] = {
    **_object(
        steps_per_print=_integer(1),
        wall_clock_breakdown=_ON_OFF,
        memory_breakdown=_ON_OFF,
        prescale_gradients=_ON_OFF,
        gradient_predivide_factor=_NUMBER,
        communication_data_type={"enum": ["fp32", "fp16", "bf16"]},
        fp16=_object(
            loss_scale={"type": "number", "minimum": 0, "maximum": 1e12},
            initial_scale_power=_integer(0, 64),
            loss_scale_window=_integer(1),
            hysteresis=_integer(1),
            consecutive_hysteresis=_ON_OFF,
            min_loss_scale=_integer(1),
        ),
        bf16=_object(immediate_grad_update=_ON_OFF, check_grad_overflow=_ON_OFF),
        zero_optimization=_object(
            allgather_partitions=_ON_OFF,
            allgather_bucket_size=_integer(1),
            overlap_comm=_ON_OFF,
            reduce_scatter=_ON_OFF,
            reduce_bucket_size=_integer(1),
            contiguous_gradients=_ON_OFF,
            round_robin_gradients=_ON_OFF,
            ignore_unused_parameters=_ON_OFF,
            sub_group_size=_integer(1),
            stage3_prefetch_bucket_size=_integer(0),
            stage3_param_persistence_threshold=_integer(0),
            stage3_model_persistence_threshold=_integer(0),
            stage3_max_live_parameters=_integer(0),
            stage3_max_reuse_distance=_integer(0),
            stage3_gather_16bit_weights_on_model_save=_ON_OFF,
        ),
        activation_checkpointing=_object(
            partition_activations=_ON_OFF,
            cpu_checkpointing=_ON_OFF,
            contiguous_memory_optimization=_ON_OFF,
            number_checkpoints=_integer(1),
            synchronize_checkpoint_boundary=_ON_OFF,
            profile=_ON_OFF,
        ),
        comms_logger=_object(enabled=_ON_OFF, verbose=_ON_OFF, prof_all=_ON_OFF, debug=_ON_OFF),
        flops_profiler=_object(
            enabled=_ON_OFF,
            profile_step=_integer(1),
            module_depth=_integer(-1),
            top_modules=_integer(1),
            detailed=_ON_OFF,
        ),
    ),
    "default": {},
}

DECIDED = {
    "train_batch_size": "distributedConfig.options.trainBatchSize",
    "train_micro_batch_size_per_gpu": "distributedConfig.options.microBatchSize",
    "gradient_accumulation_steps": "distributedConfig.options.gradientAccumulationSteps",
    "gradient_clipping": "hyperparameters.gradientClipping",
    "optimizer": "distributedConfig.options.optimizer, hyperparameters.learningRate, hyperparameters.weightDecay",
    "scheduler": "distributedConfig.options.scheduler",
    "fp16.enabled": "hyperparameters.dtype",
    "bf16.enabled": "hyperparameters.dtype",
    "zero_optimization.stage": "distributedConfig.options.zeroStage",
    "zero_optimization.offload_optimizer": "distributedConfig.options.offloadOptimizer",
    "zero_optimization.offload_param": "distributedConfig.options.offloadParameters",
    "tensor_parallel": "distributedConfig.strategy.tensorParallel",
    "pipeline": "distributedConfig.strategy.pipelineParallel",
    "distributed": "distributedConfig.nodeIds",
}
"""Keys that another field decides. `distributed` is not DeepSpeed's; the requirement document (004) has it."""


def problems(spec: JobSpec, decided: Mapping[str, str] = DECIDED) -> list[Problem]:
    """Return what is wrong with the user's own keys. `decided`: keys that may not be given, and the field that decides
    each."""
    return list(_look(spec.options.get("config", {}), CONFIG, "", decided))


def merged(ours: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with the additions, block by block."""
    result = dict(ours)
    for key, value in added.items():
        result[key] = merged(result.get(key, {}), value) if isinstance(value, dict) else value
    return result


def _look(value: Any, rule: Mapping[str, Any], path: str, decided: Mapping[str, str]) -> Iterator[Problem]:
    field = ".".join(filter(None, ("distributedConfig.options.config", path)))
    is_block = rule.get("type") == "object"
    if not (isinstance(value, dict) if is_block else options.is_valid(value, rule)):
        near = None if is_block else options.near(value, rule)
        params = {"key": path or "config", "found": value, "allowed": options.allowed(rule), "nearest": near}
        yield Problem(field, "DEEPSPEED_VALUE_INVALID", params)
    elif is_block:
        known = rule["properties"]
        for name, inner in value.items():
            key = f"{path}.{name}" if path else name
            if key in decided:
                yield Problem(f"{field}.{name}", "DEEPSPEED_KEY_DECIDED", {"key": key, "by": decided[key]})
            elif name not in known:
                params = {"key": key, "nearest": suggestions.name(name, known), "allowed": ", ".join(known)}
                yield Problem(f"{field}.{name}", "DEEPSPEED_KEY_UNKNOWN", params)
            else:
                yield from _look(inner, known[name], key, decided)
