"""Recommends frameworks for a model on given nodes, with the reasons for and against each.

Each framework states which model sizes it suits (the requirement document's table, 004, best practice); memory decides
where it disagrees with that, and a framework whose rules the nodes or the model break is rejected.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from fermi.frameworks.base import Info
from fermi.jobs import memory, recipes
from fermi.jobs.spec import Entrypoint, JobSpec, Problem
from fermi.planning import plugins, validate
from fermi.schema import humanize

DEFAULT_STACK = "torch"
"""The library assumed for a model of which only the size is known."""

_ANY_SCRIPT = Entrypoint("train.py")
"""The script with which a framework without a recipe is checked."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A framework with its own proposal (`strategy`, `options`). `reasons` have texts in `fermi.messages`, as problems
    have."""

    framework: str
    reasons: Sequence[Problem]
    strategy: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def recommend_frameworks(
    job: JobSpec, obstacles: Callable[[JobSpec], Sequence[Problem]] = lambda _: ()
) -> tuple[list[Recommendation], list[Recommendation]]:
    """Return the recommended frameworks, best first, and the rejected ones with the reasons against them. What `job`
    says of a framework is ignored; its model's size must be known. `obstacles`: returns further problems of a
    framework."""
    parameters = recipes.count_model_parameters(job)
    assert parameters is not None
    needed, usable = (
        memory.compute_needed_gib(parameters, in_buckets=job.world_size > 1),
        memory.compute_usable_gib(job.nodes),
    )
    sizes = {
        "size": humanize.format_count(parameters),
        "needed": memory.format_gib(needed),
        "usable": memory.format_gib(usable),
    }
    good, bad = [], []
    for framework in sorted(plugins.list_frameworks(), key=lambda each: _compute_size_distance(each.info, parameters)):
        info, suits = framework.info, framework.info.suits(parameters)
        mine = replace(job, framework=framework.name, strategy={}, options={}, model_parameters=parameters)
        if own := not info.recipe and job.entrypoint is None:
            mine = replace(mine, entrypoint=_ANY_SCRIPT)
        against = []
        if info.stack != DEFAULT_STACK:
            against.append(Problem("", "REJECTED_OTHER_LIBRARY", {"library": info.label}))
        elif not suits and not (info.splits_state and needed > usable):
            against.append(Problem("", "REJECTED_BY_SIZE", {**sizes, "suits": _format_range(*info.model_size)}))
        if info.replicates and needed > usable:
            against.append(Problem("", "REJECTED_BY_MEMORY", sizes))
        if against := against + validate.find_problems(mine) + [*obstacles(mine)]:
            bad.append(Recommendation(framework.name, against))
            continue
        proposal = framework.propose(mine)
        script = (Problem("entrypoint.script", "RECOMMENDED_WITH_OWN_SCRIPT"),) if own else ()
        why = Problem("", "RECOMMENDED_BY_SIZE" if suits else "RECOMMENDED_BY_MEMORY", sizes)
        good.append(
            Recommendation(framework.name, (why, *proposal.reasons, *script), proposal.strategy, proposal.options)
        )
    return good, bad


def _compute_size_distance(info: Info, parameters: int) -> float:
    """Return how far the model is from the sizes that a framework suits; 0: it suits. Equal ones stay in the registry's
    order."""
    if info.suits(parameters):
        return 0
    low, high = info.model_size
    return low / parameters if parameters < low else parameters / cast(int, high)


def _format_range(low: int, high: int | None) -> str:
    """Such as `1B – 10B`."""
    if not high:
        return f"≥ {humanize.format_count(low)}"
    return (
        f"< {humanize.format_count(high)}"
        if not low
        else f"{humanize.format_count(low)} – {humanize.format_count(high)}"
    )
