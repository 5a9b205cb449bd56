"""Strategies in the request's own spelling: which valid ones to propose for one that cannot run."""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

Strategy = Mapping[str, int]

MAX_PROPOSED = 3
"""How many strategies are proposed."""


def find_nearest(requested: Strategy, valid: Iterable[Strategy], max_count: int = MAX_PROPOSED) -> list[Strategy]:
    """Return the valid strategies that differ least from the requested one, by how often a degree is doubled or halved;
    then the simplest. A degree that is not named is 1 in `valid`, and open in the request."""

    def steps(one: Strategy) -> tuple[float, ...]:
        changes = (abs(math.log2(degree / one.get(name, 1))) for name, degree in requested.items())
        return (round(sum(changes), 6), one.get("tensorParallel", 1), one.get("pipelineParallel", 1))

    return sorted(valid, key=steps)[:max_count]


def format_degrees(values: Mapping[str, object]) -> str:
    """Return the degrees as text: `tensorParallel=8, pipelineParallel=4`."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


@lru_cache(maxsize=1024)
def list_divisors(number: int) -> tuple[int, ...]:
    """Return the divisors, ascending."""
    low = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return tuple(sorted({*low, *(number // n for n in low)}))
