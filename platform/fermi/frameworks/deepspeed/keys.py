"""Which keys of DeepSpeed's own configuration a user may add, with the types that DeepSpeed 0.19 takes.

DeepSpeed refuses keys that it does not know below `zero_optimization`, but ignores them at the top level, and `"auto"`
means something only inside Hugging Face's Trainer: so what is not written down here is refused.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fermi.jobs import options
from fermi.jobs.spec import JobSpec, Problem
from fermi.schema import suggestions

_BOOLEAN_SCHEMA = {"type": "boolean"}
_NUMBER_SCHEMA = {"type": "number", "exclusiveMinimum": 0, "maximum": 1e12}


def _integer_schema(low: int, high: int = 10**12) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high}


def _object_schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


CONFIG_SCHEMA: dict[str, Any] = {
    **_object_schema(
        steps_per_print=_integer_schema(1),
        wall_clock_breakdown=_BOOLEAN_SCHEMA,
        memory_breakdown=_BOOLEAN_SCHEMA,
        prescale_gradients=_BOOLEAN_SCHEMA,
        gradient_predivide_factor=_NUMBER_SCHEMA,
        communication_data_type={"enum": ["fp32", "fp16", "bf16"]},
        fp16=_object_schema(
            loss_scale={"type": "number", "minimum": 0, "maximum": 1e12},
            initial_scale_power=_integer_schema(0, 64),
            loss_scale_window=_integer_schema(1),
            hysteresis=_integer_schema(1),
            consecutive_hysteresis=_BOOLEAN_SCHEMA,
            min_loss_scale=_integer_schema(1),
        ),
        bf16=_object_schema(immediate_grad_update=_BOOLEAN_SCHEMA, check_grad_overflow=_BOOLEAN_SCHEMA),
        zero_optimization=_object_schema(
            allgather_partitions=_BOOLEAN_SCHEMA,
            allgather_bucket_size=_integer_schema(1),
            overlap_comm=_BOOLEAN_SCHEMA,
            reduce_scatter=_BOOLEAN_SCHEMA,
            reduce_bucket_size=_integer_schema(1),
            contiguous_gradients=_BOOLEAN_SCHEMA,
            round_robin_gradients=_BOOLEAN_SCHEMA,
            ignore_unused_parameters=_BOOLEAN_SCHEMA,
            sub_group_size=_integer_schema(1),
            stage3_prefetch_bucket_size=_integer_schema(0),
            stage3_param_persistence_threshold=_integer_schema(0),
            stage3_model_persistence_threshold=_integer_schema(0),
            stage3_max_live_parameters=_integer_schema(0),
            stage3_max_reuse_distance=_integer_schema(0),
            stage3_gather_16bit_weights_on_model_save=_BOOLEAN_SCHEMA,
        ),
        activation_checkpointing=_object_schema(
            partition_activations=_BOOLEAN_SCHEMA,
            cpu_checkpointing=_BOOLEAN_SCHEMA,
            contiguous_memory_optimization=_BOOLEAN_SCHEMA,
            number_checkpoints=_integer_schema(1),
            synchronize_checkpoint_boundary=_BOOLEAN_SCHEMA,
            profile=_BOOLEAN_SCHEMA,
        ),
        comms_logger=_object_schema(
            enabled=_BOOLEAN_SCHEMA, verbose=_BOOLEAN_SCHEMA, prof_all=_BOOLEAN_SCHEMA, debug=_BOOLEAN_SCHEMA
        ),
        flops_profiler=_object_schema(
            enabled=_BOOLEAN_SCHEMA,
            profile_step=_integer_schema(1),
            module_depth=_integer_schema(-1),
            top_modules=_integer_schema(1),
            detailed=_BOOLEAN_SCHEMA,
        ),
    ),
    "default": {},
}

DECIDED_KEYS = {
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


def find_problems(spec: JobSpec, decided: Mapping[str, str] = DECIDED_KEYS) -> list[Problem]:
    """Return what is wrong with the user's own keys. `decided`: keys that may not be given, and the field that decides
    each."""
    return list(_check_value(spec.options.get("config", {}), CONFIG_SCHEMA, "", decided))


def merge_config(config: Mapping[str, Any], additions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with the additions, block by block."""
    result = dict(config)
    for key, value in additions.items():
        result[key] = merge_config(result.get(key, {}), value) if isinstance(value, dict) else value
    return result


def _check_value(value: Any, rule: Mapping[str, Any], path: str, decided: Mapping[str, str]) -> Iterator[Problem]:
    field = ".".join(filter(None, ("distributedConfig.options.config", path)))
    is_block = rule.get("type") == "object"
    if not (isinstance(value, dict) if is_block else options.is_valid(value, rule)):
        near = None if is_block else options.suggest_value(value, rule)
        params = {"key": path or "config", "found": value, "allowed": options.describe_allowed(rule), "nearest": near}
        yield Problem(field, "DEEPSPEED_VALUE_INVALID", params)
    elif is_block:
        known = rule["properties"]
        for name, inner in value.items():
            key = f"{path}.{name}" if path else name
            if key in decided:
                yield Problem(f"{field}.{name}", "DEEPSPEED_KEY_DECIDED", {"key": key, "by": decided[key]})
            elif name not in known:
                params = {"key": key, "nearest": suggestions.suggest_name(name, known), "allowed": ", ".join(known)}
                yield Problem(f"{field}.{name}", "DEEPSPEED_KEY_UNKNOWN", params)
            else:
                yield from _check_value(inner, known[name], key, decided)
