"""Renders `ds_config.json` from the requirement document's (004) values, the user's, and what the chosen GPUs allow."""

import math
from typing import Any

from fermi.frameworks.deepspeed import keys, split
from fermi.frameworks.deepspeed.batch import TrainBatch
from fermi.jobs import gpus, network, options, recipes
from fermi.jobs.spec import JobSpec

_COUNT_SCHEMA = {"type": "integer", "minimum": 1, "maximum": 1 << 31}

OPTIONS = options.build_schema(
    zeroStage={"type": "integer", "minimum": 0, "maximum": 3},
    trainBatchSize=_COUNT_SCHEMA,
    microBatchSize=_COUNT_SCHEMA,
    gradientAccumulationSteps=_COUNT_SCHEMA,
    offloadOptimizer={"enum": ["cpu", "none"], "default": "cpu"},
    offloadParameters={"enum": ["cpu", "none"], "default": "none"},
    optimizer={"enum": ["AdamW", "Adam", "SGD"], "default": "AdamW"},
    scheduler={"enum": ["none", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"], "default": "none"},
    compiledKernels={"type": "boolean", "default": False},
    timeoutSeconds=network.TIMEOUT_SCHEMA,
    config=keys.CONFIG_SCHEMA,
)

DEFAULT_HYPERPARAMETERS: dict[str, Any] = {
    "learningRate": 1e-4,
    "learningRateScaling": "none",
    "weightDecay": 0.1,
    "gradientClipping": 1.0,
    "warmupSteps": 20,
    "totalSteps": 300,
    "dtype": "auto",
}
"""Values of hyperparameters that are not given: the document's learning rate, else the recipe's."""


def read_hyperparameter(spec: JobSpec, name: str) -> Any:
    return recipes.read_hyperparameter(spec, name, DEFAULT_HYPERPARAMETERS.get(name))


def read_stage(spec: JobSpec) -> int:
    return int(options.read_option(spec, OPTIONS, "zeroStage"))


def runs_on_cuda(spec: JobSpec) -> bool:
    """Return whether the ranks run on GPUs. DeepSpeed has one kind of accelerator per job: where any node lacks CUDA,
    all ranks run on CPUs."""
    return all(node.has_cuda for node in spec.nodes)


def choose_precision(spec: JobSpec) -> gpus.Precision:
    return gpus.choose_precision(spec.nodes, read_hyperparameter(spec, "dtype"))


def render_config(spec: JobSpec, batch: TrainBatch) -> dict[str, Any]:
    ours: dict[str, Any] = {
        **_render_split(spec, batch),
        **build_common_config(batch, read_hyperparameter(spec, "gradientClipping"), choose_precision(spec)),
        "optimizer": _render_optimizer(spec),
        **_render_scheduler(spec),
        "zero_optimization": _render_zero(spec),
        **({"zero_allow_untested_optimizer": True} if options.read_option(spec, OPTIONS, "optimizer") == "SGD" else {}),
    }
    return keys.merge_config(ours, spec.options.get("config", {}))


def build_common_config(batch: TrainBatch, clipping: float, dtype: gpus.Precision) -> dict[str, Any]:
    """Return what every `ds_config.json` of ours has, whichever code makes model and optimizer."""
    return {
        "train_micro_batch_size_per_gpu": batch.micro,
        "gradient_accumulation_steps": batch.accumulation,
        "gradient_clipping": clipping,
        "fp16": {"enabled": dtype == "float16"},
        "bf16": {"enabled": dtype == "bfloat16"},
    }


def _render_split(spec: JobSpec, batch: TrainBatch) -> dict[str, Any]:
    """Return the keys of a split. With tensor parallelism of its own DeepSpeed counts every process as one for data
    when it checks batch sizes (runtime/config.py, `_batch_assertion`), so that the train batch must be left out.
    `pipeline` is for scripts to read: they pass it to `PipelineModule`."""
    at = split.read_split(spec)
    if at.pipeline > 1:
        return {"train_batch_size": batch.train, "pipeline": {"stages": at.pipeline}}
    if at.tensor > 1:
        return {"tensor_parallel": {"autotp_size": at.tensor}}
    return {"train_batch_size": batch.train}


def _render_zero(spec: JobSpec) -> dict[str, Any]:
    at = read_stage(spec)
    found: dict[str, Any] = {"stage": at}
    if at and options.read_option(spec, OPTIONS, "offloadOptimizer") == "cpu":
        found["offload_optimizer"] = {"device": "cpu"}
    if options.read_option(spec, OPTIONS, "offloadParameters") == "cpu":
        found["offload_param"] = {"device": "cpu"}
    return found


def _render_optimizer(spec: JobSpec) -> dict[str, Any]:
    """torch's fused Adam, unless DeepSpeed's is asked for: that is compiled at first use (g++, on GPUs nvcc)."""
    kind = options.read_option(spec, OPTIONS, "optimizer")
    params = {"lr": compute_learning_rate(spec), "weight_decay": read_hyperparameter(spec, "weightDecay")}
    if kind == "SGD":
        return {"type": kind, "params": {**params, "momentum": 0.9}}
    params |= {"betas": [0.9, 0.95], "eps": 1e-8, "adam_w_mode": kind == "AdamW"}
    if not options.read_option(spec, OPTIONS, "compiledKernels"):
        params |= {"torch_adam": True, "fused": True}
    return {"type": kind, "params": params}


def compute_learning_rate(spec: JobSpec) -> float:
    """The peak, scaled by the number of data parallel ranks where that was asked for."""
    size = split.read_split(spec).data
    scale = {"none": 1, "linear": size, "sqrt": math.sqrt(size)}[read_hyperparameter(spec, "learningRateScaling")]
    peak: float = read_hyperparameter(spec, "learningRate")
    return peak * scale


def _render_scheduler(spec: JobSpec) -> dict[str, Any]:
    """`none`: DeepSpeed keeps the rate; the recipe then follows its own warm-up and cosine, like all recipes."""
    kind = options.read_option(spec, OPTIONS, "scheduler")
    if kind == "none":
        return {}
    peak, low = compute_learning_rate(spec), read_hyperparameter(spec, "minLearningRate")
    params: dict[str, Any] = {
        "warmup_num_steps": max(1, read_hyperparameter(spec, "warmupSteps")),
        "warmup_type": "linear",
    }
    if kind != "WarmupLR":
        params["total_num_steps"] = read_hyperparameter(spec, "totalSteps")
    if kind == "WarmupCosineLR":
        params["cos_min_ratio"] = 0.1 if low is None or not peak else low / peak
    else:
        params |= {"warmup_min_lr": 0, "warmup_max_lr": peak}
    return {"scheduler": {"type": kind, "params": params}}
