"""Samples of some seconds as one. Standard library only, Python 3.9 or later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fermi.telemetry.metrics import LAST, MASK, MEAN, METRICS, SUM, short

TOLD_SECONDS = 15
"""What is measured every `PERIOD_SECONDS` travels, and is kept, as one sample for each stretch of this length; they
begin at its multiples (unix seconds)."""


class Folding:
    def __init__(self) -> None:
        self._samples: list[dict[str, Any]] = []

    def add(self, sample: dict[str, Any]) -> dict[str, Any] | None:
        """The stretch before, once a sample of the next one has come."""
        before = self._samples
        if before and before[-1]["at"] // TOLD_SECONDS != sample["at"] // TOLD_SECONDS:
            self._samples = [sample]
            return folded(before)
        before.append(sample)
        return None

    def rest(self) -> dict[str, Any] | None:
        before, self._samples = self._samples, []
        return folded(before) if before else None


def folded(samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """At the moment of the last one."""
    values: dict[str, list[float]] = {}
    for sample in samples:
        for key, value in sample["values"].items():
            values.setdefault(key, []).append(value)
    return {**samples[-1], "values": {key: folded_value(key, several) for key, several in values.items()}}


def folded_value(key: str, values: Sequence[float]) -> float:
    """Of one key, what was measured one after the other."""
    fold = METRICS[key.partition(":")[0]].fold
    if fold == MEAN:
        return short(sum(values) / len(values))
    if fold == SUM:
        return sum(values)
    if fold == MASK:
        bits = 0
        for value in values:
            bits |= int(value)
        return float(bits)
    return values[-1] if fold == LAST else max(values)
