"""The arguments of Megatron-LM, in its own names (0.16.1), and the same for people to read."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from fermi.frameworks.megatron import cost, memory
from fermi.frameworks.megatron.request import OPTIONS_FIELD, STRATEGY_FIELD, MegatronRequest, read_hyperparameter
from fermi.frameworks.megatron.split import Split
from fermi.jobs.spec import LATE_TEXTS, JobSpec, Late, Problem, Value, resolve

TRAINER_DEFAULTS: dict[str, Any] = {
    "totalSteps": 300, "learningRate": 3e-3, "warmupSteps": 20, "weightDecay": 0.1, "gradientClipping": 1.0,
    "seed": 1337, "evalEvery": 100, "evalBatches": 8, "logEvery": 10, "checkpointEvery": 100,
}  # fmt: skip

DEFAULT_SAVE_STEPS = 1000
"""Steps between the checkpoints of a user's own script, which Megatron requires if it is to save."""

MEGATRON_NAMES = {
    "totalSteps": "train-iters",
    "learningRate": "lr",
    "minLearningRate": "min-lr",
    "warmupSteps": "lr-warmup-iters",
    "weightDecay": "weight-decay",
    "gradientClipping": "clip-grad",
    "seed": "seed",
    "evalEvery": "eval-interval",
    "evalBatches": "eval-iters",
    "logEvery": "log-interval",
    "checkpointEvery": "save-interval",
}
"""Hyperparameter -> Megatron's name for it."""

SIZE_HYPERPARAMETERS = ("batchSize", "gradientAccumulationSteps", "dtype", "layers", "heads", "hiddenSize",
         "sequenceLength", "vocabSize")  # fmt: skip
"""Hyperparameters from which the arguments below are computed."""

DECIDED_ARGUMENTS = {
    "tensor-model-parallel-size": f"{STRATEGY_FIELD}.tensorParallel",
    "pipeline-model-parallel-size": f"{STRATEGY_FIELD}.pipelineParallel",
    "context-parallel-size": f"{STRATEGY_FIELD}.contextParallel",
    "num-virtual-stages-per-pipeline-rank": f"{STRATEGY_FIELD}.virtualPipeline",
    "num-layers-per-virtual-pipeline-stage": f"{STRATEGY_FIELD}.virtualPipeline",
    "expert-model-parallel-size": f"{STRATEGY_FIELD}.expertParallel",
    "num-experts": f"{OPTIONS_FIELD}.numExperts",
    "num-layers": "hyperparameters.layers",
    "hidden-size": "hyperparameters.hiddenSize",
    "num-attention-heads": "hyperparameters.heads",
    "seq-length": "hyperparameters.sequenceLength",
    "max-position-embeddings": f"{OPTIONS_FIELD}.maxPositionEmbeddings",
    "micro-batch-size": f"{OPTIONS_FIELD}.microBatchSize",
    "global-batch-size": f"{OPTIONS_FIELD}.globalBatchSize",
    "sequence-parallel": f"{OPTIONS_FIELD}.sequenceParallel",
    "use-distributed-optimizer": f"{OPTIONS_FIELD}.distributedOptimizer",
    "recompute-granularity": f"{OPTIONS_FIELD}.recompute",
    "bf16": f"{OPTIONS_FIELD}.precision",
    "fp16": f"{OPTIONS_FIELD}.precision",
}
"""Arguments that a user's own script may not be given besides, and the field that decides each."""


def find_decided_arguments(spec: JobSpec, decided: Mapping[str, str] = DECIDED_ARGUMENTS) -> list[Problem]:
    """Return the script's own arguments that are decided elsewhere: given twice, one would win over what was
    checked."""
    if spec.entrypoint is None or not spec.options.get("appendArguments", True):
        return []
    found = []
    for word in spec.entrypoint.args:
        name = word.removeprefix("--").partition("=")[0]
        if word.startswith("--") and name in decided:
            params = {"name": f"--{name}", "by": decided[name]}
            found.append(Problem("entrypoint.args", "MEGATRON_ARGUMENT_DECIDED", params))
    return found


def build_arguments(spec: JobSpec, request: MegatronRequest, split: Split) -> dict[str, Any]:
    """Return the arguments: name without leading dashes -> value; True = the flag alone."""
    model = request.model
    words: dict[str, Any] = {
        "tensor-model-parallel-size": split.tensor,
        "pipeline-model-parallel-size": split.pipeline,
        "context-parallel-size": split.context,
        **({"num-virtual-stages-per-pipeline-rank": split.virtual} if split.virtual > 1 else {}),
        **({"expert-model-parallel-size": split.expert} if split.expert > 1 else {}),
        **({"num-experts": model.experts, "disable-bias-linear": True} if model.experts else {}),
        "sequence-parallel": split.sequence_parallel,
        "use-distributed-optimizer": split.distributed_optimizer,
        "num-layers": model.layers,
        "hidden-size": model.hidden,
        "num-attention-heads": model.heads,
        "seq-length": model.sequence,
        "max-position-embeddings": read_max_positions(spec, request),
        "micro-batch-size": split.micro,
        "global-batch-size": split.global_batch,
        **_build_recompute(split),
        **_build_schedule(spec),
        "bf16": request.cluster.dtype == "bfloat16",
        "fp16": request.cluster.dtype == "float16",
        "distributed-backend": "nccl",
        **_build_data(spec, request),
    }
    return {name: value for name, value in words.items() if value is not False}


def read_max_positions(spec: JobSpec, request: MegatronRequest) -> int:
    return int(spec.options.get("maxPositionEmbeddings", request.model.sequence))


def list_words(arguments: Mapping[str, Any]) -> list[Value]:
    found: list[Value] = []
    for name, value in arguments.items():
        found += (
            [f"--{name}"]
            if value is True
            else [f"--{name}", value if isinstance(value, tuple) else _format_value(value)]
        )
    return found


def render_args_file(arguments: Mapping[str, Any]) -> Value:
    """Return the arguments one per line, for `$(cat megatron_args.txt)`."""
    pieces: list[str | Late] = []
    for name, value in arguments.items():
        pieces.append(f"--{name}\n" if value is True else f"--{name} ")
        if value is not True:
            pieces += [*(value if isinstance(value, tuple) else (_format_value(value),)), "\n"]
    known = [piece for piece in pieces if isinstance(piece, str)]
    return "".join(known) if len(known) == len(pieces) else tuple(pieces)


def render_config_file(request: MegatronRequest, split: Split, launched_with: Mapping[str, Any]) -> str:
    """Return the split, the batch, the memory of a GPU and the arguments as YAML, for people."""
    taken, gib = memory.estimate_memory(request, split), 2**30
    found = {
        "world_size": request.cluster.world,
        "parallel": {
            "tensor": split.tensor, "pipeline": split.pipeline, "context": split.context, "data": split.data,
            "virtual_pipeline": split.virtual, "expert": split.expert, "sequence_parallel": split.sequence_parallel,
            "distributed_optimizer": split.distributed_optimizer,
            **({} if split.zero is None else {"zero_stage": split.zero}),
        },
        "model": {
            "layers": request.model.layers, "hidden_size": request.model.hidden,
            "attention_heads": request.model.heads, "sequence_length": request.model.sequence,
            "vocabulary": request.model.vocabulary, "experts": request.model.experts,
            "parameters": memory.count_parameters(request.model),
        },
        "batch": {
            "global": split.global_batch, "micro": split.micro, "micro_batches": split.micro_batches,
            "pipeline_bubble": round(cost.compute_bubble_share(split), 4),
        },
        "precision": request.cluster.dtype,
        "recompute": split.recompute,
        "estimated_gib_per_gpu": {
            "weights": round(taken.weights / gib, 2), "gradients": round(taken.gradients / gib, 2),
            "optimizer": round(taken.optimizer / gib, 2), "activations": round(taken.activations / gib, 2),
            "total": round(taken.total / gib, 2), "gpu": request.cluster.gpu.memory,
        },
        "arguments": {name: resolve(value, LATE_TEXTS) if isinstance(value, tuple) else value
                      for name, value in launched_with.items()},
    }  # fmt: skip
    return yaml.safe_dump(found, sort_keys=False, allow_unicode=True)


def _build_recompute(split: Split) -> dict[str, Any]:
    """Return the arguments of recomputation. `full`: every layer, one at a time, which keeps least."""
    if split.recompute == "none":
        return {}
    full = {"recompute-method": "uniform", "recompute-num-layers": 1} if split.recompute == "full" else {}
    return {"recompute-granularity": split.recompute, **full}


def _build_schedule(spec: JobSpec) -> dict[str, Any]:
    """Return the arguments of the schedule. A user's own script gets only what the user gave."""
    defaults = TRAINER_DEFAULTS if spec.entrypoint is None else {}
    given = {name: read_hyperparameter(spec, name, defaults.get(name)) for name in MEGATRON_NAMES}
    if given["minLearningRate"] is None and given["learningRate"] is not None:
        given["minLearningRate"] = float(f"{given['learningRate'] / 10:.6g}")
    if given["checkpointEvery"] == 0:  # only at the end
        given["checkpointEvery"] = given["totalSteps"] or DEFAULT_SAVE_STEPS
    found = {MEGATRON_NAMES[name]: value for name, value in given.items() if value is not None}
    return {**found, "lr-decay-style": "cosine", "adam-beta1": 0.9, "adam-beta2": 0.95}


def _build_data(spec: JobSpec, request: MegatronRequest) -> dict[str, Any]:
    """Return the arguments of data and checkpoints. The trainer reads the dataset's own files and ids of bytes.
    Megatron's loaders want an index that the platform does not make, so a user's own script has data and tokenizer in
    its own arguments."""
    if spec.entrypoint is None:
        vocabulary = {"tokenizer-type": "NullTokenizer", "vocab-size": request.model.vocabulary}
        return {"untie-embeddings-and-output-weights": True, **vocabulary}
    if not spec.checkpoint_dir:
        return {}
    every = {} if read_hyperparameter(spec, "checkpointEvery") else {"save-interval": DEFAULT_SAVE_STEPS}
    return {**every, "save": spec.checkpoint_dir, **_build_load(spec)}


def _build_load(spec: JobSpec) -> dict[str, Any]:
    """Return what a user's own script loads, unless a resume rule says that. `--load` names the folder that has the
    tracker file, so a checkpoint in it (`iter_0000100`) is named by `--ckpt-step` besides, as an earlier one than the
    newest may be meant (megatron/training/arguments.py); with DeepSpeed its folder (`global_step100`) is not."""
    if spec.resume_rule:
        return {}
    if spec.resume_from in ("", "auto"):
        return {"load": spec.checkpoint_dir}
    folder, _, name = spec.resume_from.rstrip("/").rpartition("/")
    if match := re.fullmatch(r"iter_(\d{7,})", name):
        return {"load": folder, "ckpt-step": int(match[1])}
    return {"load": folder if re.fullmatch(r"global_step\d+", name) else spec.resume_from}


def _format_value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
