"""The script's arguments and `ds_config.json`. Batch sizes, precision and ZeRO stage are in both and agree."""

import json
from typing import Any

from fermi.frameworks.deepspeed import config as deepspeed
from fermi.frameworks.deepspeed import keys
from fermi.frameworks.deepspeed.batch import TrainBatch
from fermi.frameworks.megatron import arguments as megatron
from fermi.frameworks.megatron.request import OPTIONS_FIELD, STRATEGY_FIELD, MegatronRequest, read_hyperparameter
from fermi.frameworks.megatron.split import Split
from fermi.frameworks.megatron_deepspeed.rules import REFUSED_ARGUMENTS
from fermi.jobs.spec import JobSpec, Late, Value

CONFIG_FILE: Value = (Late.FILES_DIR, "/ds_config.json")

DEFAULT_CLIPPING = 1.0
"""Megatron's default for `--clip-grad`."""

DECIDED_ARGUMENTS = {
    **{name: field for name, field in megatron.DECIDED_ARGUMENTS.items() if name not in (*REFUSED_ARGUMENTS,
    "num-experts")}, "deepspeed": "distributedConfig.framework",
    "deepspeed_config": f"{OPTIONS_FIELD}.config",
    "zero-stage": f"{OPTIONS_FIELD}.zeroStage",
    "no-pipeline-parallel": f"{STRATEGY_FIELD}.pipelineParallel",
    "ds-sequence-parallel-size": f"{STRATEGY_FIELD}.contextParallel",
    "clip-grad": "hyperparameters.gradientClipping",
}  # fmt: skip
"""Arguments that the script may not be given besides, and the field that decides each."""

DECIDED_KEYS = {
    **{key: field for key, field in keys.DECIDED_KEYS.items() if "optim" not in key and "offload" not in key},
    "train_batch_size": f"{OPTIONS_FIELD}.globalBatchSize",
    "gradient_accumulation_steps": f"{OPTIONS_FIELD}.globalBatchSize, {OPTIONS_FIELD}.microBatchSize",
    "fp16.enabled": f"{OPTIONS_FIELD}.precision",
    "bf16.enabled": f"{OPTIONS_FIELD}.precision",
    "bf16.immediate_grad_update": f"{OPTIONS_FIELD}.zeroStage",
    "zero_optimization.stage": f"{OPTIONS_FIELD}.zeroStage",
    "optimizer": "entrypoint.args (--optimizer), hyperparameters.learningRate, hyperparameters.weightDecay",
    "scheduler": "entrypoint.args (--lr-decay-style), hyperparameters.warmupSteps",
}
"""Keys of DeepSpeed's that another field decides. Megatron brings optimizer and schedule; a second one here would be
built beside it and never step."""


def build_arguments(spec: JobSpec, request: MegatronRequest, split: Split) -> dict[str, Any]:
    """Return the arguments: name without leading dashes -> value; True = the flag alone."""
    given = megatron.build_arguments(spec, request, split)
    del given["context-parallel-size"]  # its name here is another
    given.pop("ckpt-step", None)  # it has none: DeepSpeed loads what `latest` names
    full = split.recompute == "full"
    ours: dict[str, Any] = {
        "deepspeed": True,
        "deepspeed_config": CONFIG_FILE,
        "zero-stage": split.zero,
        "no-pipeline-parallel": split.pipeline == 1,
        **({"ds-sequence-parallel-size": split.context} if split.context > 1 else {}),
        "deepspeed-activation-checkpointing": full,
    }
    found = {**given, "clip-grad": read_clipping(spec), **ours}
    return {name: value for name, value in found.items() if value is not False}


def render_config(spec: JobSpec, request: MegatronRequest, split: Split) -> str:
    """Return `ds_config.json`. `data_types`: with bfloat16 gradients are added up in float32, as Megatron does by
    itself."""
    dtype, stage = request.cluster.dtype, split.zero or 0
    batch = TrainBatch(split.global_batch, split.micro, split.micro_batches)
    ours: dict[str, Any] = {
        "train_batch_size": batch.train,
        **deepspeed.build_common_config(batch, read_clipping(spec), dtype),
        "zero_optimization": {"stage": stage},
    }
    if dtype == "bfloat16" and stage:
        ours["data_types"] = {"grad_accum_dtype": "fp32"}
    if dtype == "bfloat16" and stage == 1:
        ours["bf16"] |= {"immediate_grad_update": True}  # else every gradient is kept in bfloat16, too
    return json.dumps(keys.merge_config(ours, spec.options.get("config", {})), indent=2) + "\n"


def read_clipping(spec: JobSpec) -> float:
    return float(read_hyperparameter(spec, "gradientClipping", DEFAULT_CLIPPING))
