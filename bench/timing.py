"""Medians of things that are measured alternately."""

import time
from collections.abc import Callable, Mapping
from statistics import median
from types import MappingProxyType


def measure_seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def measure_in_turns(
    rounds: int, times: Mapping[str, int] = MappingProxyType({}), /, **actions: Callable[[], float]
) -> dict[str, float]:
    """Return the median of what each action returns. They alternate, so that other load of the machine affects all of
    them. `times`: for an action that is done less often."""
    found: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(rounds):
        for name, action in actions.items():
            if turn < times.get(name, rounds):
                found[name].append(action())
    return {name: median(values) for name, values in found.items()}
