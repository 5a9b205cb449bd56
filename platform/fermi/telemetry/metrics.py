"""Metrics that can be measured, by the name under which they are reported, stored, queried and shown. Standard library
only, Python 3.9 or later.

A value's key is the metric's name, and for all but a node's own metrics an index after a colon: `cpu`, `gpu:3`,
`received:eth0`, `disk_used:/data`, `rank_cpu:12`. A value is a number; what cannot be measured is left out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

NODE, GPU, NETWORK, DISK, RANK = "node", "gpu", "network", "disk", "rank"
MEAN, PEAK, SUM, LAST, MASK = "mean", "peak", "sum", "last", "mask"

PERIOD_SECONDS = 5.0
"""Time from one sample to the next."""
MAX_INDEX_CHARS = 64
MIN_WHOLE_VALUE = 1000.0
"""From here on values are whole numbers: further digits mean nothing."""


class Metric(NamedTuple):
    """A metric. `subject`: what it is measured of, and so what its index is: none, the GPU's number on its node, an
    interface, a mount point, a rank. `fold`: how several values are aggregated over a longer interval: their `mean`
    (and, stored beside it, the largest), their `sum` (of what is counted since the value before), the `last` one, or
    all bits of a `mask`."""

    unit: str
    subject: str
    fold: str = MEAN


METRICS = {
    "cpu": Metric("%", NODE),  # of all processors that the node may use
    "load": Metric("", NODE),  # processes that run or wait for a processor or a disk, over a minute
    "memory": Metric("B", NODE),  # in use: what is not available
    "memory_total": Metric("B", NODE, LAST),
    "shm": Metric("B", NODE),  # /dev/shm
    "shm_total": Metric("B", NODE, LAST),
    "gpu": Metric("%", GPU),  # of the time, something ran on it
    "gpu_memory": Metric("B", GPU),
    "gpu_memory_total": Metric("B", GPU, LAST),
    "power": Metric("W", GPU),
    "temperature": Metric("°C", GPU),
    "sm_clock": Metric("MHz", GPU),
    "memory_clock": Metric("MHz", GPU),
    "throttled": Metric("", GPU, MASK),  # why it is slower than it could be: bits of `SLOWDOWN_BITS`
    "ecc": Metric("", GPU, SUM),  # memory errors that could not be corrected
    "xid": Metric("", GPU, LAST),  # the driver's number of the newest error of this GPU
    "nvlink_received": Metric("B/s", GPU),
    "nvlink_sent": Metric("B/s", GPU),
    "pcie_received": Metric("B/s", GPU),
    "pcie_sent": Metric("B/s", GPU),
    "gpu_processes": Metric("", GPU),
    "received": Metric("B/s", NETWORK),
    "sent": Metric("B/s", NETWORK),
    "disk_used": Metric("B", DISK),
    "disk_total": Metric("B", DISK, LAST),
    "disk_read": Metric("B/s", DISK),
    "disk_written": Metric("B/s", DISK),
    "rank_cpu": Metric("%", RANK),  # of one processor
    "rank_memory": Metric("B", RANK),  # resident
    "rank_gpu_memory": Metric("B", RANK),
    "rank_read": Metric("B/s", RANK),
    "rank_written": Metric("B/s", RANK),
}

SLOWDOWN_BITS = {"power": 1, "heat": 2, "hardware": 4, "other": 8}
"""Bits of `throttled`."""


def build_key(name: str, index: object = "") -> str:
    """Return the key of a metric and an index."""
    return f"{name}:{index}" if METRICS[name].subject != NODE else name


def parse_key(key: str) -> tuple[str, str] | None:
    """Return a key's metric and index (empty for a node's own); None for what is no key."""
    name, colon, index = key.partition(":")
    metric = METRICS.get(name)
    if (
        metric is None
        or bool(colon) is (metric.subject == NODE)
        or len(index) > MAX_INDEX_CHARS
        or (colon and not index)
    ):
        return None
    return name, index


def round_value(value: float) -> float:
    """Return a value with no more digits than matter; 0 for what is not finite."""
    if not math.isfinite(value):
        return 0.0
    return int(value) if abs(value) >= MIN_WHOLE_VALUE else round(value, 2)
