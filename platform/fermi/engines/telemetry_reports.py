"""Parse samples of what nodes and ranks use, by their shape only: what is no metric, and no number that a machine could
have, counts as not reported."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fermi.engines import runner_reports, untrusted
from fermi.jobs.spec import Sample
from fermi.telemetry import metrics

MAX_VALUES = 4096
MAX_SAMPLES = 64
MAX_VALUE = 1e18
MAX_SKEW_SECONDS = 300.0
"""Seconds by which the clocks of a node and of its file system may differ."""
_NODE = re.compile(r"node-(\d{1,7})\.telemetry\.json")
_parse_value = untrusted.build_number_parser(-MAX_VALUE, MAX_VALUE)


def parse_sample(data: Any, node_rank: int = 0) -> Sample | None:
    """Return a sample; None for what is none, or has no values."""
    at = untrusted.MOMENT(data.get("at")) if isinstance(data, dict) else None
    if at is None:
        return None
    known = data.get("values")
    if not isinstance(known, dict) or len(known) > MAX_VALUES:
        return None
    values = {
        key: float(value) for key, value in known.items() if metrics.parse_key(key) and _parse_value(value) is not None
    }
    return Sample(node_rank, float(at), values, data.get("emulated") is True) if values else None


def serialize_sample(sample: Sample) -> dict[str, Any]:
    """Return a sample as runners write it."""
    return {"at": sample.at, "values": dict(sample.values), **({"emulated": True} if sample.emulated else {})}


def parse_samples(data: Any, node_rank: int = 0, after: float = 0.0) -> list[Sample]:
    """Return the samples since `after` (unix seconds), in order of time."""
    listed = [one for one in data[-MAX_SAMPLES:] if _get_time(one) > after] if isinstance(data, list) else []
    return sorted((one for said in listed if (one := parse_sample(said, node_rank))), key=lambda one: one.at)


def read_samples(folder: Path, after: float) -> Sequence[Sample]:
    """Return the samples since `after` of all nodes whose runners write to a folder: `{"telemetry": […]}` in
    `node-<k>.telemetry.json`."""
    found: list[Sample] = []
    for path in folder.glob("node-*.telemetry.json"):
        if (name := _NODE.fullmatch(path.name)) and _read_mtime(path) >= after - MAX_SKEW_SECONDS:
            found += parse_samples((runner_reports.read_report(path) or {}).get("telemetry"), int(name[1]), after)
    return sorted(found, key=lambda one: one.at)


def _get_time(data: Any) -> float:
    return float(untrusted.MOMENT(data.get("at")) or 0.0) if isinstance(data, dict) else 0.0


def _read_mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
