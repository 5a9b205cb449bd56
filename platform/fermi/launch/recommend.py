"""Which framework for a model on given nodes, as each would run it there, and why not the others.

The table by size is the requirement document's (004, best practice); memory decides where it disagrees with it, and a
framework whose rules the nodes or the model break is out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fermi.launch import figures, memory, recipes, registry, validate
from fermi.launch.spec import JobSpec, Problem

BY_SIZE: list[tuple[float, tuple[str, ...]]] = [
    (1e9, ("pytorch-ddp",)),
    (1e10, ("pytorch-fsdp", "horovod")),
    (1e11, ("deepspeed",)),
    (float("inf"), ("megatron-lm", "deepspeed")),
]
REPLICATING = {"pytorch-ddp", "horovod", "jax"}
"""Every GPU holds the whole model and its optimizer."""

SPLITTING = ("pytorch-fsdp", "deepspeed")
"""What to use at any size once that does not fit, best first."""

OTHER_LIBRARIES = {"jax": "JAX"}
"""Only where the model is written for it, which nobody can see from its size."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """`strategy` and `options`: the framework's own proposal. `reasons` have texts in `fermi.messages`, as problems
    have."""

    framework: str
    reasons: Sequence[Problem]
    strategy: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def recommend(job: JobSpec) -> tuple[list[Recommendation], list[Recommendation]]:
    """Those recommended, best first, and those that are not, with the reasons against them. What `job` says of a
    framework counts for nothing; its model's size must be known."""
    parameters = recipes.parameters(job)
    assert parameters is not None
    needed, usable = memory.needed(parameters), memory.usable(job.nodes)
    sizes = {"size": figures.count(parameters), "needed": memory.shown(needed), "usable": memory.shown(usable)}
    suited = next(names for limit, names in BY_SIZE if parameters < limit)
    order = dict.fromkeys([*suited, *SPLITTING, *registry.FRAMEWORKS])
    good, bad = [], []
    for name in order:
        if name not in registry.FRAMEWORKS:
            continue
        framework = registry.framework(name)
        mine = replace(job, framework=name, strategy={}, options={})
        against = []
        if name in OTHER_LIBRARIES:
            against.append(Problem("", "REJECTED_OTHER_LIBRARY", {"library": OTHER_LIBRARIES[name]}))
        elif name not in suited and not (name in SPLITTING and needed > usable):
            against.append(Problem("", "REJECTED_BY_SIZE", {**sizes, "suits": _range(framework.INFO["modelSize"])}))
        if name in REPLICATING and needed > usable:
            against.append(Problem("", "REJECTED_BY_MEMORY", sizes))
        if against := against + validate.problems(mine):
            bad.append(Recommendation(name, against))
            continue
        proposal = framework.propose(mine)
        why = Problem("", "RECOMMENDED_BY_SIZE" if name in suited else "RECOMMENDED_BY_MEMORY", sizes)
        good.append(Recommendation(name, (why, *proposal.reasons), proposal.strategy, proposal.options))
    return good, bad


def _range(size: Mapping[str, int | None]) -> str:
    """Such as `1B – 10B`."""
    low, high = size["min"] or 0, size["max"]
    if not high:
        return f"≥ {figures.count(low)}"
    return f"< {figures.count(high)}" if not low else f"{figures.count(low)} – {figures.count(high)}"
