"""The arguments of Megatron-LM, in its own names (0.16.1), and the same for people to read."""

from collections.abc import Mapping
from typing import Any

import yaml

from fermi.frameworks.megatron import cost, memory
from fermi.frameworks.megatron.request import OPTION, STRATEGY, Request, hyperparameter
from fermi.frameworks.megatron.split import Split
from fermi.jobs.spec import SHOWN, JobSpec, Late, Problem, Value, resolve

TRAINER_DEFAULTS: dict[str, Any] = {
    "totalSteps": 300, "learningRate": 3e-3, "warmupSteps": 20, "weightDecay": 0.1, "gradientClipping": 1.0,
    "seed": 1337, "evalEvery": 100, "evalBatches": 8, "logEvery": 10, "checkpointEvery": 100,
}  # fmt: skip

SAVE_EVERY = 1000
"""Steps between the checkpoints of a user's own script, which Megatron requires if it is to save."""

NAMES = {
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

SIZES = ("batchSize", "gradientAccumulationSteps", "dtype", "layers", "heads", "hiddenSize", "sequenceLength",
         "vocabSize")  # fmt: skip
"""Hyperparameters from which the arguments below are computed."""

DECIDED = {
    "tensor-model-parallel-size": f"{STRATEGY}.tensorParallel",
    "pipeline-model-parallel-size": f"{STRATEGY}.pipelineParallel",
    "context-parallel-size": f"{STRATEGY}.contextParallel",
    "num-virtual-stages-per-pipeline-rank": f"{STRATEGY}.virtualPipeline",
    "num-layers-per-virtual-pipeline-stage": f"{STRATEGY}.virtualPipeline",
    "expert-model-parallel-size": f"{STRATEGY}.expertParallel",
    "num-experts": f"{OPTION}.numExperts",
    "num-layers": "hyperparameters.layers",
    "hidden-size": "hyperparameters.hiddenSize",
    "num-attention-heads": "hyperparameters.heads",
    "seq-length": "hyperparameters.sequenceLength",
    "max-position-embeddings": f"{OPTION}.maxPositionEmbeddings",
    "micro-batch-size": f"{OPTION}.microBatchSize",
    "global-batch-size": f"{OPTION}.globalBatchSize",
    "sequence-parallel": f"{OPTION}.sequenceParallel",
    "use-distributed-optimizer": f"{OPTION}.distributedOptimizer",
    "recompute-granularity": f"{OPTION}.recompute",
    "bf16": f"{OPTION}.precision",
    "fp16": f"{OPTION}.precision",
}
"""Arguments that a user's own script may not be given besides, and the field that decides each."""


def own_arguments(spec: JobSpec, decided: Mapping[str, str] = DECIDED) -> list[Problem]:
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


def arguments(spec: JobSpec, request: Request, split: Split) -> dict[str, Any]:
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
        "max-position-embeddings": positions(spec, request),
        "micro-batch-size": split.micro,
        "global-batch-size": split.global_batch,
        **_recompute(split),
        **_schedule(spec),
        "bf16": request.cluster.dtype == "bfloat16",
        "fp16": request.cluster.dtype == "float16",
        "distributed-backend": "nccl",
        **_data(spec, request),
    }
    return {name: value for name, value in words.items() if value is not False}


def positions(spec: JobSpec, request: Request) -> int:
    return int(spec.options.get("maxPositionEmbeddings", request.model.sequence))


def words(arguments: Mapping[str, Any]) -> list[Value]:
    found: list[Value] = []
    for name, value in arguments.items():
        found += [f"--{name}"] if value is True else [f"--{name}", value if isinstance(value, tuple) else _text(value)]
    return found


def args_file(arguments: Mapping[str, Any]) -> Value:
    """Return the arguments one per line, for `$(cat megatron_args.txt)`."""
    pieces: list[str | Late] = []
    for name, value in arguments.items():
        pieces.append(f"--{name}\n" if value is True else f"--{name} ")
        if value is not True:
            pieces += [*(value if isinstance(value, tuple) else (_text(value),)), "\n"]
    known = [piece for piece in pieces if isinstance(piece, str)]
    return "".join(known) if len(known) == len(pieces) else tuple(pieces)


def config_file(request: Request, split: Split, given: Mapping[str, Any]) -> str:
    """Return the split, the batch, the memory of a GPU and the arguments as YAML, for people."""
    taken, gib = memory.estimate(request, split), 2**30
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
            "parameters": memory.parameters(request.model),
        },
        "batch": {
            "global": split.global_batch, "micro": split.micro, "micro_batches": split.micro_batches,
            "pipeline_bubble": round(cost.bubble_share(split), 4),
        },
        "precision": request.cluster.dtype,
        "recompute": split.recompute,
        "estimated_gib_per_gpu": {
            "weights": round(taken.weights / gib, 2), "gradients": round(taken.gradients / gib, 2),
            "optimizer": round(taken.optimizer / gib, 2), "activations": round(taken.activations / gib, 2),
            "total": round(taken.total / gib, 2), "gpu": request.cluster.gpu.memory,
        },
        "arguments": {name: resolve(value, SHOWN) if isinstance(value, tuple) else value
                      for name, value in given.items()},
    }  # fmt: skip
    return yaml.safe_dump(found, sort_keys=False, allow_unicode=True)


def _recompute(split: Split) -> dict[str, Any]:
    """Return the arguments of recomputation. `full`: every layer, one at a time, which keeps least."""
    if split.recompute == "none":
        return {}
    full = {"recompute-method": "uniform", "recompute-num-layers": 1} if split.recompute == "full" else {}
    return {"recompute-granularity": split.recompute, **full}


def _schedule(spec: JobSpec) -> dict[str, Any]:
    """Return the arguments of the schedule. A user's own script gets only what the user gave."""
    defaults = TRAINER_DEFAULTS if spec.entrypoint is None else {}
    given = {name: hyperparameter(spec, name, defaults.get(name)) for name in NAMES}
    if given["minLearningRate"] is None and given["learningRate"] is not None:
        given["minLearningRate"] = float(f"{given['learningRate'] / 10:.6g}")
    if given["checkpointEvery"] == 0:  # only at the end
        given["checkpointEvery"] = given["totalSteps"] or SAVE_EVERY
    found = {NAMES[name]: value for name, value in given.items() if value is not None}
    return {**found, "lr-decay-style": "cosine", "adam-beta1": 0.9, "adam-beta2": 0.95}


def _data(spec: JobSpec, request: Request) -> dict[str, Any]:
    """Return the arguments of data and checkpoints. The trainer reads the dataset's own files and ids of bytes.
    Megatron's loaders want an index that the platform does not make, so a user's own script has data and tokenizer in
    its own arguments."""
    if spec.entrypoint is None:
        vocabulary = {"tokenizer-type": "NullTokenizer", "vocab-size": request.model.vocabulary}
        return {"untie-embeddings-and-output-weights": True, **vocabulary}
    if not spec.checkpoint_dir:
        return {}
    every = {} if hyperparameter(spec, "checkpointEvery") else {"save-interval": SAVE_EVERY}
    return {**every, "save": spec.checkpoint_dir, "load": spec.resume_from or spec.checkpoint_dir}


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
