"""Parse samples of what nodes and ranks use, by their shape only: what is no metric, and no number that a machine could
have, counts as not reported."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fermi.engines import runner_reports, untrusted
from fermi.jobs.spec import Sample
from fermi.telemetry import metrics

MOST_VALUES = 4096
MOST_SAMPLES = 64
LARGEST = 1e18
SKEW = 300.0
"""Seconds by which the clocks of a node and of its file system may differ."""
_NODE = re.compile(r"node-(\d{1,7})\.telemetry\.json")
_value = untrusted.number(-LARGEST, LARGEST)


def sample(found: Any, node_rank: int = 0) -> Sample | None:
    """Return a sample; None for what is none, or has no values."""
    at = untrusted.MOMENT(found.get("at")) if isinstance(found, dict) else None
    if at is None:
        return None
    known = found.get("values")
    if not isinstance(known, dict) or len(known) > MOST_VALUES:
        return None
    values = {key: float(value) for key, value in known.items() if metrics.parts(key) and _value(value) is not None}
    return Sample(node_rank, float(at), values, found.get("emulated") is True) if values else None


def told(sample: Sample) -> dict[str, Any]:
    """Return a sample as runners write it."""
    return {"at": sample.at, "values": dict(sample.values), **({"emulated": True} if sample.emulated else {})}


def samples(found: Any, node_rank: int = 0, after: float = 0.0) -> list[Sample]:
    """Return the samples since `after` (unix seconds), in order of time."""
    listed = [one for one in found[-MOST_SAMPLES:] if _at(one) > after] if isinstance(found, list) else []
    return sorted((one for said in listed if (one := sample(said, node_rank))), key=lambda one: one.at)


def samples_in(folder: Path, after: float) -> Sequence[Sample]:
    """Return the samples since `after` of all nodes whose runners write to a folder: `{"telemetry": […]}` in
    `node-<k>.telemetry.json`."""
    found: list[Sample] = []
    for path in folder.glob("node-*.telemetry.json"):
        if (name := _NODE.fullmatch(path.name)) and _written(path) >= after - SKEW:
            found += samples((runner_reports.read(path) or {}).get("telemetry"), int(name[1]), after)
    return sorted(found, key=lambda one: one.at)


def _at(found: Any) -> float:
    return float(untrusted.MOMENT(found.get("at")) or 0.0) if isinstance(found, dict) else 0.0


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
