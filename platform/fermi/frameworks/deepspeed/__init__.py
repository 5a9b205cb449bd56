"""DeepSpeed: data parallel, with optimizer state, gradients and weights split among the ranks by ZeRO stage; and the
model itself by tensor and pipeline.

    stage 0   every rank holds everything (as DDP does)
    stage 1   optimizer state is split
    stage 2   gradients, too
    stage 3   weights, too

split.py      tensor × pipeline × data, and DeepSpeed's rules for it
batch.py      train batch = micro batch × accumulation × data parallel ranks, solved from what was given
config.py     the options, and `ds_config.json`
keys.py       which of DeepSpeed's own keys a user may add
proposal.py   what is chosen where nothing is said
"""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fermi.frameworks._planning import build_plan
from fermi.frameworks.base import Info
from fermi.frameworks.deepspeed import config, keys, split
from fermi.frameworks.deepspeed.batch import TrainBatch, solve_batch
from fermi.frameworks.deepspeed.config import OPTIONS
from fermi.frameworks.deepspeed.proposal import estimate_state_gib, propose
from fermi.jobs import effective_batch as effective
from fermi.jobs import elastic, gpus, memory, network, options, rank_env, recipes
from fermi.jobs.rank_env import COMPILE_PATH, COMPILE_VARIABLE
from fermi.jobs.ranks import place_nodes
from fermi.jobs.spec import JobSpec, Late, Plan, Problem, Value
from fermi.schema import humanize

INFO = Info(
    elastic="even",
    label="DeepSpeed",
    parallelism=("data", "sharded", "tensor", "pipeline"),
    model_size=(10_000_000_000, 100_000_000_000),
    packages=("deepspeed",),
)

_IMPORTS = ("torch", "numpy", "torch.distributed", "torch._dynamo")
PRELOAD = (
    *_IMPORTS,
    "torch._inductor.compile_fx",
    "fermi.train.deepspeed_on_cpu",
    "deepspeed.module_inject.auto_ep_layer",
)
"""For ranks on CPUs. On GPUs DeepSpeed itself is left out: importing it looks for devices, and a process that is to be
forked must not have touched CUDA."""

CONFIG_FILE: Value = (Late.FILES_DIR, "/ds_config.json")


def problems(spec: JobSpec) -> list[Problem]:
    found = options.find_problems(spec, OPTIONS, leave_out=("config",)) + keys.find_problems(spec)
    if found:
        return found + split.find_problems(spec)
    found = split.find_problems(spec)
    is_split = not any(problem.field.startswith(split.STRATEGY_FIELD) for problem in found)
    spec = propose(spec).to(spec)
    batch = solve_batch(spec)
    if is_split and isinstance(batch, Problem):
        found.append(batch)
    found += _check_offload(spec)
    params: dict[str, Any]
    if config.choose_precision(spec) == "float16" and not config.runs_on_cuda(spec):
        params = {"found": "float16", "allowed": "float32, bfloat16", "nearest": "bfloat16"}
        found.append(Problem("hyperparameters.dtype", "FLOAT16_NEEDS_GPU", params))
    kind = options.read_option(spec, OPTIONS, "scheduler")
    if spec.entrypoint and kind not in ("none", "WarmupLR") and "totalSteps" not in spec.hyperparameters:
        params = {"scheduler": kind, "nearest": 1}
        found.append(Problem("hyperparameters.totalSteps", "SCHEDULER_NEEDS_TOTAL_STEPS", params))
    return found


def warnings(spec: JobSpec) -> list[Problem]:
    """Return warnings: what DeepSpeed cannot split, idle time of the pipeline, too little memory, and a batch size that
    was overridden by the train batch."""
    batch, wished = solve_batch(spec), spec.hyperparameters.get("batchSize")
    found = split.find_warnings(spec, batch.accumulation if isinstance(batch, TrainBatch) else 1)
    if not problems(spec):
        found += _check_memory(spec)
    if isinstance(batch, TrainBatch) and "microBatchSize" not in spec.options and wished not in (None, batch.micro):
        params = {"found": wished, "micro": batch.micro, "steps": batch.accumulation, "train": batch.train}
        found.append(Problem("hyperparameters.batchSize", "BATCH_SIZE_GAVE_WAY", params))
    return found


def effective_batch(spec: JobSpec) -> effective.EffectiveBatch | None:
    spec = propose(spec).to(spec)
    if isinstance(step := solve_batch(spec), Problem):
        return None
    rate = config.read_hyperparameter(spec, "learningRate")
    return effective.build_effective_batch(
        spec, step.micro, split.read_split(spec).data, step.accumulation, learning_rate=rate
    )


def splits(spec: JobSpec) -> list[Mapping[str, int]]:
    return split.list_possible_splits(spec)


def batch(spec: JobSpec) -> tuple[int, int] | None:
    """Return sequences per rank and micro step, and accumulation steps. `ds_config.json` always has them."""
    found = solve_batch(propose(spec).to(spec))
    return (found.micro, found.accumulation) if isinstance(found, TrainBatch) else None


def resized(spec: JobSpec, share: elastic.BatchDivision) -> JobSpec:
    """Return the job with the divided batch. The ZeRO stage and what is offloaded stay those that were proposed at the
    size asked for: a checkpoint belongs to one stage, and what fits onto more GPUs need not fit onto fewer."""
    assert spec.elastic is not None
    full = elastic.restore_full_size(spec)
    divided = {
        "trainBatchSize": spec.elastic.batch,
        "microBatchSize": share.rows[0],
        "gradientAccumulationSteps": share.steps,
    }
    rate = {"learningRate": config.compute_learning_rate(full), "learningRateScaling": "none"}
    settled = {**propose(full).to(full).options, **divided}
    return replace(spec, options=settled, hyperparameters={**spec.hyperparameters, **rate})


def plan(spec: JobSpec) -> Plan:
    spec = propose(spec).to(spec)
    batch, backend = solve_batch(spec), rank_env.choose_backend(spec)
    assert isinstance(batch, TrainBatch)
    env = {**network.build_torch_env(spec, backend), **_build_env(spec)}
    at = split.read_split(spec)
    sizes = {"tensor_parallel_size": at.tensor, "pipeline_parallel_size": at.pipeline}
    extra = {"backend": backend, **{name: size for name, size in sizes.items() if size > 1}}
    command = recipes.build_command(spec, "fermi.train.train_deepspeed", extra)
    if spec.entrypoint is None:
        command += ("--deepspeed_config", CONFIG_FILE)
    return build_plan(
        spec,
        command,
        files={
            "ds_config.json": json.dumps(config.render_config(spec, batch), indent=2) + "\n",
            "hostfile": _render_hostfile(spec),
        },
        preload=_IMPORTS if config.runs_on_cuda(spec) else PRELOAD,
        node_env=lambda _: env,
    )


def _check_memory(spec: JobSpec) -> list[Problem]:
    """Return a warning where a split model does not fit; without a split ZeRO's stage is proposed by what fits."""
    at, parameters, usable = (
        split.read_split(spec),
        recipes.count_model_parameters(spec),
        memory.compute_usable_gib(spec.nodes),
    )
    if at.ranks_per_model == 1 or parameters is None:
        return []
    spec = propose(spec).to(spec)
    taken = estimate_state_gib(spec, config.read_stage(spec), parameters)
    if taken <= usable:
        return []
    params = {"size": humanize.format_count(parameters), "needed": memory.format_gib(taken), "usable":
              memory.format_gib(usable), "tensor": at.tensor, "pipeline": at.pipeline}  # fmt: skip
    return [Problem(split.STRATEGY_FIELD, "DEEPSPEED_OUT_OF_MEMORY", params)]


def _check_offload(spec: JobSpec) -> list[Problem]:
    """Return the problem of offloading what is not split: the optimizer's state can be from stage 1 on, weights in
    stage 3."""
    found = []
    for name, least in (("offloadOptimizer", 1), ("offloadParameters", 3)):
        if spec.options.get(name) == "cpu" and config.read_stage(spec) < least:
            params = {"name": name, "stage": config.read_stage(spec), "needed": least, "nearest": "none"}
            found.append(Problem(f"distributedConfig.options.{name}", "OFFLOAD_NEEDS_STAGE", params))
    return found


def _build_env(spec: JobSpec) -> Mapping[str, Value]:
    """Return the variables of all ranks. Kernels are compiled under a lock that a killed process leaves locked for
    ever; an attempt with a folder of its own never meets it. See docs/decisions/0008."""
    env: dict[str, Value] = {"FERMI_DEEPSPEED_CONFIG": CONFIG_FILE}
    env[COMPILE_VARIABLE] = COMPILE_PATH
    at = split.read_split(spec)
    degrees = {"FERMI_TENSOR_PARALLEL": at.tensor, "FERMI_PIPELINE_PARALLEL": at.pipeline}
    env |= {name: str(degree) for name, degree in degrees.items() if degree > 1}
    if (seconds := spec.options.get("timeoutSeconds")) is not None:
        env["DEEPSPEED_TIMEOUT"] = str(math.ceil(seconds / 60))  # minutes
    if not config.runs_on_cuda(spec):
        env |= {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    elif config.choose_precision(spec) == "float16" and gpus.find_weakest(spec.nodes).capability < 7:
        env["DS_ALLOW_DEPRECATED_FP16"] = "1"  # Pascal has float16, but DeepSpeed wants to be told
    return env


def _render_hostfile(spec: JobSpec) -> str:
    """Return the host file for DeepSpeed's own launcher, which numbers ranks in the order of the lines: the same ranks
    as ours."""
    nodes = [at.node for at in place_nodes(spec.nodes, spec.master)]
    return "".join(f"{node.address} slots={node.processes}\n" for node in nodes)
