"""Splits the model over the ranks: tensor inside its layers (AutoTP), pipeline between them (`PipelineModule`), and
data with what is left.

DeepSpeed's rules, with the lines that have them in DeepSpeed 0.19.8; those without one are ours. A strategy with a
`dataParallel` that these processes do not add up to, as in the requirement document (004), is none of DeepSpeed's:
data parallelism runs instead, with a warning (docs/decisions/0042-deepspeed-tensor-and-pipeline-parallelism.md).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fermi.frameworks import parallelism
from fermi.jobs import rank_env, recipes
from fermi.jobs.spec import JobSpec, Problem

STRATEGY_FIELD = "distributedConfig.strategy"
DEGREES = ("tensorParallel", "pipelineParallel", "dataParallel")

MAX_DEGREE = 1 << 20

BUBBLE_WARNING_SHARE = 0.25
"""Share of a step in the pipeline's bubble from which on the user is warned."""

MICRO_BATCHES_PER_STAGE = 4
"""Micro-batches per stage with which a pipeline is hardly ever idle (Huang et al. 2019, "GPipe", §2.3)."""


@dataclass(frozen=True, slots=True)
class Split:
    """Degrees of a split. Ranks count tensor fastest, then data, pipeline (`PipeModelDataParallelTopology`)."""

    tensor: int
    pipeline: int
    data: int

    @property
    def strategy(self) -> dict[str, int]:
        """In the request's spelling."""
        return dict(zip(DEGREES, (self.tensor, self.pipeline, self.data), strict=True))

    @property
    def ranks_per_model(self) -> int:
        return self.tensor * self.pipeline


def read_split(spec: JobSpec) -> Split:
    """Return the split that will run. Where the strategy breaks a rule, the data degree that it leaves, at least one
    rank."""
    if not _is_rendered(spec):
        return Split(1, 1, spec.world_size)
    tensor, pipeline = (_read_degree(spec, name) or 1 for name in DEGREES[:2])
    return Split(tensor, pipeline, max(1, spec.world_size // (tensor * pipeline)))


def find_problems(spec: JobSpec) -> list[Problem]:
    found = []
    for name in DEGREES:
        if name in spec.strategy and _read_degree(spec, name) is None:
            params = {"name": name, "found": spec.strategy[name], "allowed": f"integer ≥ 1 ≤ {MAX_DEGREE}"}
            found.append(Problem(f"{STRATEGY_FIELD}.{name}", "STRATEGY_INVALID", params))
    if found or not _is_rendered(spec):
        return found
    broken = list(_find_broken_rules(spec, read_split(spec)))
    nearest = (
        _format_nearest(spec, 1, any_stage=True) if broken else ""
    )  # a stage that allows no pipeline is named beside it
    return [Problem(one.field, one.code, {"nearest": nearest, **one.params}) for one in broken]


def find_warnings(spec: JobSpec, accumulation: int) -> list[Problem]:
    """Return warnings about the split. `accumulation`: micro-batches per step and pipeline."""
    if not _is_rendered(spec):
        found = rank_env.find_unrendered_strategy(spec, "DeepSpeed")
        named = {"splits": _format_nearest(spec), "worldSize": spec.world_size}
        return [*found, Problem(STRATEGY_FIELD, "DEEPSPEED_SPLITS_POSSIBLE", named)] if found else []
    pipeline = read_split(spec).pipeline
    share = (pipeline - 1) / (accumulation + pipeline - 1)
    if share <= BUBBLE_WARNING_SHARE:
        return []
    params = {
        "share": f"{share:.0%}",
        "pipeline": pipeline,
        "microBatches": accumulation,
        "enough": MICRO_BATCHES_PER_STAGE * pipeline,
    }
    return [Problem(f"{STRATEGY_FIELD}.pipelineParallel", "DEEPSPEED_BUBBLE", params)]


def list_possible_splits(spec: JobSpec) -> list[parallelism.Strategy]:
    """Return the strategies nearest to one that cannot run; none where it can."""
    asked = {name: degree for name in DEGREES if (degree := _read_degree(spec, name))}
    if not asked or (_is_rendered(spec) and not find_problems(spec)):
        return []
    return parallelism.find_nearest(asked, (split.strategy for split in _list_valid_splits(spec)))


def _is_rendered(spec: JobSpec) -> bool:
    """Return whether the strategy names only DeepSpeed's degrees, and its `dataParallel` is what these processes
    leave."""
    if any(degree != 1 for name, degree in spec.strategy.items() if name not in DEGREES):
        return False
    tensor, pipeline, data = (_read_degree(spec, name) for name in DEGREES)
    return data is None or (tensor or 1) * (pipeline or 1) * data == spec.world_size


def _read_degree(spec: JobSpec, name: str) -> int | None:
    value = spec.strategy.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_DEGREE else None


def _find_broken_rules(spec: JobSpec, split: Split) -> Iterator[Problem]:
    params: dict[str, Any]
    if spec.world_size % split.ranks_per_model:  # runtime/pipe/topology.py, `_is_grid_valid`
        params = {"worldSize": spec.world_size, "tensor": split.tensor, "pipeline": split.pipeline,
                  "product": split.ranks_per_model}  # fmt: skip
        yield Problem(STRATEGY_FIELD, "DEEPSPEED_WORLD_NOT_DIVISIBLE", params)
    sizes = [node.processes for node in spec.nodes]
    if cramped := [size for size in sizes if size % split.tensor]:
        params = {"found": split.tensor, "gpus": cramped[0], "allowed": _format_divisors(math.gcd(*sizes))}
        yield Problem(f"{STRATEGY_FIELD}.tensorParallel", "DEEPSPEED_TENSOR_CROSSES_NODES", params)
    layers, heads = _read_model(spec)
    if heads and heads % split.tensor:
        params = {"found": split.tensor, "heads": heads, "allowed": _format_divisors(heads)}
        yield Problem(f"{STRATEGY_FIELD}.tensorParallel", "DEEPSPEED_HEADS_NOT_DIVISIBLE", params)
    if layers and split.pipeline > layers:  # a stage without a layer
        params = {"found": split.pipeline, "layers": layers, "allowed": f"1 – {layers}"}
        yield Problem(f"{STRATEGY_FIELD}.pipelineParallel", "DEEPSPEED_STAGES_TOO_MANY", params)
    if split.pipeline > 1 and _stage_forbids_pipeline(spec):
        params = {"found": spec.options["zeroStage"], "pipeline": split.pipeline, "nearest": 1}
        yield Problem("distributedConfig.options.zeroStage", "DEEPSPEED_PIPELINE_STAGE", params)


def _stage_forbids_pipeline(spec: JobSpec) -> bool:
    """Return whether the ZeRO stage forbids a pipeline: runtime/pipe/engine.py:73."""
    return spec.options.get("zeroStage") in (2, 3)


def _list_valid_splits(spec: JobSpec, *, any_stage: bool = False) -> Iterator[Split]:
    """Yield valid splits; of those with a pipeline, such as give each stage as many layers. `any_stage`: the ZeRO stage
    is to be another one."""
    layers, heads = _read_model(spec)
    world, alone = spec.world_size, _stage_forbids_pipeline(spec) and not any_stage
    for tensor in parallelism.list_divisors(math.gcd(*(node.processes for node in spec.nodes))):
        for pipeline in [1] if alone else parallelism.list_divisors(world // tensor):
            if not (heads and heads % tensor) and not (layers and layers % pipeline):
                yield Split(tensor, pipeline, world // (tensor * pipeline))


def _read_model(spec: JobSpec) -> tuple[int | None, int | None]:
    """Return the recipe's layers and heads. A user's own model may be cut otherwise, so they are None."""
    if spec.entrypoint is not None:
        return None, None
    sizes = (spec.hyperparameters.get(name, usual) for name, usual in (("layers", 2), ("heads", 4)))
    layers, heads = (
        int(size) if recipes.GPT[name].accepts(size) else None
        for name, size in zip(("layers", "heads"), sizes, strict=True)
    )
    return layers, heads


def _format_nearest(spec: JobSpec, max_count: int = parallelism.MAX_PROPOSED, *, any_stage: bool = False) -> str:
    asked = {name: degree for name in DEGREES if (degree := _read_degree(spec, name))}
    near = parallelism.find_nearest(
        asked, (split.strategy for split in _list_valid_splits(spec, any_stage=any_stage)), max_count
    )
    return "; ".join(parallelism.format_degrees(one) for one in near)


def _format_divisors(number: int) -> str:
    return ", ".join(map(str, parallelism.list_divisors(number)))
