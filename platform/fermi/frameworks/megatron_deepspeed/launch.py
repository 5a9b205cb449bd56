"""The script's arguments and `ds_config.json`. Batch sizes, precision and ZeRO stage are in both and agree."""

import json
from typing import Any

from fermi.frameworks.deepspeed import config as deepspeed
from fermi.frameworks.deepspeed import keys
from fermi.frameworks.deepspeed.batch import Batch
from fermi.frameworks.megatron import arguments as megatron
from fermi.frameworks.megatron.request import OPTION, STRATEGY, Request, hyperparameter
from fermi.frameworks.megatron.split import Split
from fermi.frameworks.megatron_deepspeed.rules import LACKS
from fermi.jobs.spec import JobSpec, Late, Value

CONFIG_FILE: Value = (Late.FILES_DIR, "/ds_config.json")

CLIPPING = 1.0
"""Megatron's default for `--clip-grad`."""

DECIDED_ARGUMENTS = {
    **{name: field for name, field in megatron.DECIDED.items() if name not in (*LACKS, "num-experts")},
    "deepspeed": "distributedConfig.framework",
    "deepspeed_config": f"{OPTION}.config",
    "zero-stage": f"{OPTION}.zeroStage",
    "no-pipeline-parallel": f"{STRATEGY}.pipelineParallel",
    "ds-sequence-parallel-size": f"{STRATEGY}.contextParallel",
    "clip-grad": "hyperparameters.gradientClipping",
}  # fmt: skip
"""Arguments that the script may not be given besides, and the field that decides each."""

DECIDED_KEYS = {
    **{key: field for key, field in keys.DECIDED.items() if "optim" not in key and "offload" not in key},
    "train_batch_size": f"{OPTION}.globalBatchSize",
    "gradient_accumulation_steps": f"{OPTION}.globalBatchSize, {OPTION}.microBatchSize",
    "fp16.enabled": f"{OPTION}.precision",
    "bf16.enabled": f"{OPTION}.precision",
    "bf16.immediate_grad_update": f"{OPTION}.zeroStage",
    "zero_optimization.stage": f"{OPTION}.zeroStage",
    "optimizer": "entrypoint.args (--optimizer), hyperparameters.learningRate, hyperparameters.weightDecay",
    "scheduler": "entrypoint.args (--lr-decay-style), hyperparameters.warmupSteps",
}
"""Keys of DeepSpeed's that another field decides. Megatron brings optimizer and schedule; a second one here would be
built beside it and never step."""


def arguments(spec: JobSpec, request: Request, split: Split) -> dict[str, Any]:
    """Return the arguments: name without leading dashes -> value; True = the flag alone."""
    given = megatron.arguments(spec, request, split)
    del given["context-parallel-size"]  # its name here is another
    full = split.recompute == "full"
    ours: dict[str, Any] = {
        "deepspeed": True,
        "deepspeed_config": CONFIG_FILE,
        "zero-stage": split.zero,
        "no-pipeline-parallel": split.pipeline == 1,
        **({"ds-sequence-parallel-size": split.context} if split.context > 1 else {}),
        "deepspeed-activation-checkpointing": full,
    }
    found = {**given, "clip-grad": clipping(spec), **ours}
    return {name: value for name, value in found.items() if value is not False}


def config(spec: JobSpec, request: Request, split: Split) -> str:
    """Return `ds_config.json`. `data_types`: with bfloat16 gradients are added up in float32, as Megatron does by
    itself."""
    dtype, stage = request.cluster.dtype, split.zero or 0
    batch = Batch(split.global_batch, split.micro, split.micro_batches)
    ours: dict[str, Any] = {
        "train_batch_size": batch.train,
        **deepspeed.every(batch, clipping(spec), dtype),
        "zero_optimization": {"stage": stage},
    }
    if dtype == "bfloat16" and stage:
        ours["data_types"] = {"grad_accum_dtype": "fp32"}
    if dtype == "bfloat16" and stage == 1:
        ours["bf16"] |= {"immediate_grad_update": True}  # else every gradient is kept in bfloat16, too
    return json.dumps(keys.merged(ours, spec.options.get("config", {})), indent=2) + "\n"


def clipping(spec: JobSpec) -> float:
    return float(hyperparameter(spec, "gradientClipping", CLIPPING))
