"""Renders `ds_config.json` from the requirement document's (004) values, the user's, and what the chosen GPUs allow."""

import math
from typing import Any

from fermi.frameworks.deepspeed import keys, split
from fermi.frameworks.deepspeed.batch import Batch
from fermi.jobs import gpus, network, options, recipes
from fermi.jobs.spec import JobSpec

_COUNT = {"type": "integer", "minimum": 1, "maximum": 1 << 31}

OPTIONS = options.schema(
    zeroStage={"type": "integer", "minimum": 0, "maximum": 3},
    trainBatchSize=_COUNT,
    microBatchSize=_COUNT,
    gradientAccumulationSteps=_COUNT,
    offloadOptimizer={"enum": ["cpu", "none"], "default": "cpu"},
    offloadParameters={"enum": ["cpu", "none"], "default": "none"},
    optimizer={"enum": ["AdamW", "Adam", "SGD"], "default": "AdamW"},
    scheduler={"enum": ["none", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"], "default": "none"},
    compiledKernels={"type": "boolean", "default": False},
    timeoutSeconds=network.TIMEOUT,
    config=keys.CONFIG,
)

DEFAULTS: dict[str, Any] = {
    "learningRate": 1e-4,
    "learningRateScaling": "none",
    "weightDecay": 0.1,
    "gradientClipping": 1.0,
    "warmupSteps": 20,
    "totalSteps": 300,
    "dtype": "auto",
}
"""Values of hyperparameters that are not given: the document's learning rate, else the recipe's."""


def hyperparameter(spec: JobSpec, name: str) -> Any:
    return recipes.given(spec, name, DEFAULTS.get(name))


def stage(spec: JobSpec) -> int:
    return int(options.value(spec, OPTIONS, "zeroStage"))


def on_cuda(spec: JobSpec) -> bool:
    """Return whether the ranks run on GPUs. DeepSpeed has one kind of accelerator per job: where any node lacks CUDA,
    all ranks run on CPUs."""
    return all(node.has_cuda for node in spec.nodes)


def precision(spec: JobSpec) -> gpus.Precision:
    return gpus.precision(spec.nodes, hyperparameter(spec, "dtype"))


def render(spec: JobSpec, batch: Batch) -> dict[str, Any]:
    ours: dict[str, Any] = {
        **_split(spec, batch),
        **every(batch, hyperparameter(spec, "gradientClipping"), precision(spec)),
        "optimizer": _optimizer(spec),
        **_scheduler(spec),
        "zero_optimization": _zero(spec),
        **({"zero_allow_untested_optimizer": True} if options.value(spec, OPTIONS, "optimizer") == "SGD" else {}),
    }
    return keys.merged(ours, spec.options.get("config", {}))


def every(batch: Batch, clipping: float, dtype: gpus.Precision) -> dict[str, Any]:
    """Return what every `ds_config.json` of ours has, whichever code makes model and optimizer."""
    return {
        "train_micro_batch_size_per_gpu": batch.micro,
        "gradient_accumulation_steps": batch.accumulation,
        "gradient_clipping": clipping,
        "fp16": {"enabled": dtype == "float16"},
        "bf16": {"enabled": dtype == "bfloat16"},
    }


def _split(spec: JobSpec, batch: Batch) -> dict[str, Any]:
    """Return the keys of a split. With tensor parallelism of its own DeepSpeed counts every process as one for data
    when it checks batch sizes (runtime/config.py, `_batch_assertion`), so that the train batch must be left out.
    `pipeline` is for scripts to read: they pass it to `PipelineModule`."""
    at = split.of(spec)
    if at.pipeline > 1:
        return {"train_batch_size": batch.train, "pipeline": {"stages": at.pipeline}}
    if at.tensor > 1:
        return {"tensor_parallel": {"autotp_size": at.tensor}}
    return {"train_batch_size": batch.train}


def _zero(spec: JobSpec) -> dict[str, Any]:
    at = stage(spec)
    found: dict[str, Any] = {"stage": at}
    if at and options.value(spec, OPTIONS, "offloadOptimizer") == "cpu":
        found["offload_optimizer"] = {"device": "cpu"}
    if options.value(spec, OPTIONS, "offloadParameters") == "cpu":
        found["offload_param"] = {"device": "cpu"}
    return found


def _optimizer(spec: JobSpec) -> dict[str, Any]:
    """torch's fused Adam, unless DeepSpeed's is asked for: that is compiled at first use (g++, on GPUs nvcc)."""
    kind = options.value(spec, OPTIONS, "optimizer")
    params = {"lr": learning_rate(spec), "weight_decay": hyperparameter(spec, "weightDecay")}
    if kind == "SGD":
        return {"type": kind, "params": {**params, "momentum": 0.9}}
    params |= {"betas": [0.9, 0.95], "eps": 1e-8, "adam_w_mode": kind == "AdamW"}
    if not options.value(spec, OPTIONS, "compiledKernels"):
        params |= {"torch_adam": True, "fused": True}
    return {"type": kind, "params": params}


def learning_rate(spec: JobSpec) -> float:
    """The peak, scaled by the number of data parallel ranks where that was asked for."""
    size = split.of(spec).data
    scale = {"none": 1, "linear": size, "sqrt": math.sqrt(size)}[hyperparameter(spec, "learningRateScaling")]
    peak: float = hyperparameter(spec, "learningRate")
    return peak * scale


def _scheduler(spec: JobSpec) -> dict[str, Any]:
    """`none`: DeepSpeed keeps the rate; the recipe then follows its own warm-up and cosine, like all recipes."""
    kind = options.value(spec, OPTIONS, "scheduler")
    if kind == "none":
        return {}
    peak, low = learning_rate(spec), hyperparameter(spec, "minLearningRate")
    params: dict[str, Any] = {"warmup_num_steps": max(1, hyperparameter(spec, "warmupSteps")), "warmup_type": "linear"}
    if kind != "WarmupLR":
        params["total_num_steps"] = hyperparameter(spec, "totalSteps")
    if kind == "WarmupCosineLR":
        params["cos_min_ratio"] = 0.1 if low is None or not peak else low / peak
    else:
        params |= {"warmup_min_lr": 0, "warmup_max_lr": peak}
    return {"scheduler": {"type": kind, "params": params}}
