"""Medians of things measured in turns."""

import time
from collections.abc import Callable
from statistics import median


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def in_turns(rounds: int, **actions: Callable[[], float]) -> dict[str, float]:
    """The median of what each action returns. They take turns, so that whatever else the machine does meanwhile
    is shared among them."""
    found: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            found[name].append(action())
    return {name: median(values) for name, values in found.items()}
