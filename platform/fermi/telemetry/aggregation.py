"""Aggregate samples of some seconds into one. Standard library only, Python 3.9 or later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fermi.telemetry.metrics import LAST, MASK, MEAN, METRICS, SUM, round_value

REPORT_SECONDS = 15
"""Samples are measured every `PERIOD_SECONDS`, and sent and stored as one for each interval of this length; intervals
begin at its multiples (unix seconds)."""


class SampleAggregator:
    """Aggregates the samples of one interval after the other."""

    def __init__(self) -> None:
        self._samples: list[dict[str, Any]] = []

    def add(self, sample: dict[str, Any]) -> dict[str, Any] | None:
        """Add a sample; return the aggregate of the interval before, once a sample of the next one has come, else
        None."""
        before = self._samples
        if before and before[-1]["at"] // REPORT_SECONDS != sample["at"] // REPORT_SECONDS:
            self._samples = [sample]
            return aggregate_samples(before)
        before.append(sample)
        return None

    def rest(self) -> dict[str, Any] | None:
        """Return the aggregate of the samples that are left; None: there are none."""
        before, self._samples = self._samples, []
        return aggregate_samples(before) if before else None


def aggregate_samples(samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one sample for several, with the time of the last one."""
    values: dict[str, list[float]] = {}
    for sample in samples:
        for key, value in sample["values"].items():
            values.setdefault(key, []).append(value)
    return {**samples[-1], "values": {key: aggregate_values(key, several) for key, several in values.items()}}


def aggregate_values(key: str, values: Sequence[float]) -> float:
    """Return one value for the values of a key, in the order in which they were measured."""
    fold = METRICS[key.partition(":")[0]].fold
    if fold == MEAN:
        return round_value(sum(values) / len(values))
    if fold == SUM:
        return sum(values)
    if fold == MASK:
        bits = 0
        for value in values:
            bits |= int(value)
        return float(bits)
    return values[-1] if fold == LAST else max(values)
