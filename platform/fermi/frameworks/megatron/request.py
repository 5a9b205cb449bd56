"""What a job states about a Megatron-LM run: the model's sizes, its GPUs, and what the user chose. Frozen and hashable,
so that a proposal is computed once."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from fermi.jobs import gpus, options, recipes
from fermi.jobs.ranks import place_nodes
from fermi.jobs.spec import JobSpec, Problem

_COUNT_SCHEMA = {"type": "integer", "minimum": 1, "maximum": 1 << 31}

OPTIONS = options.build_schema(
    globalBatchSize=_COUNT_SCHEMA,
    microBatchSize=_COUNT_SCHEMA,
    recompute={"enum": ["none", "selective", "full"]},
    sequenceParallel={"type": "boolean"},
    distributedOptimizer={"type": "boolean", "default": True},
    precision={"enum": ["auto", "bfloat16", "float16", "float32"], "default": "auto"},
    maxPositionEmbeddings=_COUNT_SCHEMA,
    numExperts={"type": "integer", "minimum": 2, "maximum": 4096},
    appendArguments={"type": "boolean", "default": True},
)

DEGREES = {
    "dataParallel": "data",
    "tensorParallel": "tensor",
    "pipelineParallel": "pipeline",
    "contextParallel": "context",
    "virtualPipeline": "virtual",
    "expertParallel": "expert",
}
"""Name in `distributedConfig.strategy` -> name here."""

STRATEGY_FIELD, OPTIONS_FIELD = "distributedConfig.strategy", "distributedConfig.options"

TRAINER_SIZES: dict[str, Any] = {"layers": 2, "heads": 4, "hiddenSize": 64, "sequenceLength": 64, "vocabSize": 256}
"""Sizes of the reference trainer."""

MAX_SIZES = {"layers": 1000, "heads": 1000, "hiddenSize": 1 << 20, "sequenceLength": 1 << 24, "vocabSize": 1 << 24}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A GPT as Megatron builds it by default: MLP of four times the hidden size, learned positions. `experts` 0: dense;
    `tied`: the output layer is the embedding."""

    layers: int
    heads: int
    hidden: int
    sequence: int
    vocabulary: int
    experts: int = 0
    tied: bool = False


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """`nodes`, `zones`: processes per node and per run of neighbouring nodes of a zone, both in the order of ranks."""

    nodes: tuple[int, ...]
    zones: tuple[int, ...]
    gpu: gpus.Gpu
    gpu_known: bool
    dtype: gpus.Precision

    @property
    def world(self) -> int:
        return sum(self.nodes)


@dataclass(frozen=True, slots=True)
class UserChoices:
    """What the user chose; None is open. `trainer`: whether our reference trainer runs, which has neither context nor
    expert parallelism. `deepspeed`: whether DeepSpeed has the optimizer, by the ZeRO stage `zero`."""

    global_batch: int
    tensor: int | None = None
    pipeline: int | None = None
    context: int | None = None
    virtual: int | None = None
    expert: int | None = None
    data: int | None = None
    micro: int | None = None
    recompute: str | None = None
    sequence_parallel: bool | None = None
    distributed_optimizer: bool = True
    trainer: bool = True
    deepspeed: bool = False
    zero: int | None = None


@dataclass(frozen=True, slots=True)
class MegatronRequest:
    model: ModelShape
    cluster: ClusterShape
    given: UserChoices


def read_request(
    spec: JobSpec,
    offered: Mapping[str, Any] = OPTIONS,
    degrees_offered: Collection[str] = tuple(DEGREES),
    leave_out: Collection[str] = (),
) -> MegatronRequest | list[Problem]:
    """Return the request, or the problems that leave nothing to compute with. `leave_out`: options that the caller
    checks."""
    found = options.find_problems(spec, offered, leave_out) + _check_degrees(spec, degrees_offered) + _check_sizes(spec)
    if found:
        return found
    model, micro = _read_model(spec), spec.options.get("microBatchSize")
    degrees: dict[str, Any] = {name: spec.strategy.get(key) for key, name in DEGREES.items()}
    given = UserChoices(
        **degrees,
        global_batch=_read_global_batch(spec, micro),
        micro=micro,
        recompute=spec.options.get("recompute"),
        sequence_parallel=spec.options.get("sequenceParallel"),
        distributed_optimizer=options.read_option(spec, OPTIONS, "distributedOptimizer"),
        trainer=spec.entrypoint is None,
    )
    return MegatronRequest(model, _read_cluster(spec), given)


read_hyperparameter = recipes.read_hyperparameter


def read_precision(spec: JobSpec) -> Any:
    """Return the option, else the recipe's own hyperparameter for it."""
    option = options.read_option(spec, OPTIONS, "precision")
    return read_hyperparameter(spec, "dtype", "auto") if option == "auto" else option


def _check_degrees(spec: JobSpec, offered: Collection[str]) -> list[Problem]:
    found = []
    for name, value in spec.strategy.items():
        if name not in offered:
            params = {"name": name, "allowed": ", ".join(offered)}
            found.append(Problem(f"{STRATEGY_FIELD}.{name}", "STRATEGY_UNKNOWN", params))
        elif not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1 << 20:
            params = {"name": name, "found": value, "allowed": f"integer ≥ 1 ≤ {1 << 20}"}
            found.append(Problem(f"{STRATEGY_FIELD}.{name}", "STRATEGY_INVALID", params))
    return found


def _check_sizes(spec: JobSpec) -> list[Problem]:
    """Return missing or invalid sizes. The trainer has default sizes; a user's own script's are unknown, and everything
    depends on them."""
    found = []
    for name, high in MAX_SIZES.items():
        value = spec.hyperparameters.get(name, TRAINER_SIZES[name] if spec.entrypoint is None else None)
        if value is None and name == "vocabSize":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high:
            if spec.entrypoint is None and not recipes.GPT[name].accepts(value):
                value = None  # the recipe's own rules say so already
            else:
                params = {"name": name, "found": "–" if value is None else value, "high": high}
                found.append(Problem(f"hyperparameters.{name}", "MEGATRON_SIZE_NEEDED", params))
    return found


GPT_VOCABULARY = 51_200
"""GPT-2's, as Megatron pads it: taken for a script of the user's own that does not say."""


def _read_model(spec: JobSpec) -> ModelShape:
    own = spec.entrypoint is not None
    defaults = {**TRAINER_SIZES, "vocabSize": GPT_VOCABULARY} if own else TRAINER_SIZES
    layers, heads, hidden, sequence, vocabulary = (
        read_hyperparameter(spec, name, defaults[name]) for name in MAX_SIZES
    )
    tied = spec.entrypoint is not None and "--untie-embeddings-and-output-weights" not in spec.entrypoint.args
    return ModelShape(layers, heads, hidden, sequence, vocabulary, spec.options.get("numExperts", 0), tied)


def _read_cluster(spec: JobSpec) -> ClusterShape:
    """Return the nodes. Emulated GPUs count as what they stand for: nothing of Megatron runs without CUDA anyway."""
    nodes = [at.node for at in place_nodes(spec.nodes, spec.master)]
    weakest = gpus.find_weakest(nodes)
    wanted = read_precision(spec)
    best: gpus.Precision = "bfloat16" if weakest.bfloat16 else "float16"
    return ClusterShape(
        nodes=tuple(node.processes for node in nodes),
        zones=tuple(sum(node.processes for node in run) for _, run in groupby(nodes, lambda node: node.zone)),
        gpu=weakest,
        gpu_known=all(gpus.is_known(node.gpu_type) for node in nodes),
        dtype=best if wanted == "auto" else wanted,
    )


def _read_global_batch(spec: JobSpec, micro: int | None) -> int:
    """Return the samples per optimizer step. Not given: what the same hyperparameters mean to the data-parallel
    frameworks, one batch per GPU and micro step."""
    if given := spec.options.get("globalBatchSize"):
        return int(given)
    batch = micro or read_hyperparameter(spec, "batchSize", recipes.DEFAULT_BATCH_SIZE)
    return int(batch * read_hyperparameter(spec, "gradientAccumulationSteps", 1) * spec.world_size)
