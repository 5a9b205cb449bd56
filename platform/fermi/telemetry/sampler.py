"""Take samples of a node, its GPUs and its ranks. Standard library only, Python 3.9 or later. What cannot be read is
left out; nothing here raises.

A sample: `{"at": unix seconds, "values": {key: number}, "emulated": true}`, `emulated` only where it is so.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from fermi.telemetry import gpus, metrics
from fermi.telemetry.gpus import GpuReader, GpuReadings
from fermi.telemetry.node import NodeReader
from fermi.telemetry.proc_files import CounterRates, ProcFiles
from fermi.telemetry.ranks import RankReader
from fermi.telemetry.xids import XidReader


class TelemetrySampler:
    """Sampler of one node. `folders`: where training reads and writes. `visible`: CUDA_VISIBLE_DEVICES of the node's
    ranks; None: all GPUs; empty: what its ranks use of the processors stands in for GPUs. `xids`: reader of these GPUs'
    Xids, where other code uses it, too."""

    def __init__(
        self,
        folders: Iterable[str] = (),
        visible: str | None = None,
        root: str = "/",
        reader: GpuReader | None = None,
        xids: XidReader | None = None,
    ) -> None:
        self._files, self._rates = ProcFiles(root), CounterRates()
        self._node = NodeReader(self._files, self._rates, folders)
        self._ranks = RankReader(self._files, self._rates)
        self.emulated = visible == ""
        self._gpus = None if self.emulated else reader or gpus.find_gpu_reader(visible, self._rates)
        self._xids = xids or XidReader(visible)

    def sample(self, ranks: Mapping[int, int] | None = None, places: Mapping[int, int] | None = None) -> dict[str, Any]:
        """Return a sample. `ranks`: the first process of each; `places`: which of the node's GPUs each has, by rank."""
        now, ranks = time.monotonic(), ranks or {}
        values = self._node.read_values(now)
        values.update(self._ranks.read_values(ranks, now))
        if self.emulated:
            values.update({
                f"gpu:{place}": min(100.0, values[f"rank_cpu:{rank}"])
                for rank, place in (places or {}).items() if f"rank_cpu:{rank}" in values
            })  # fmt: skip
        elif self._gpus:
            values.update(_flatten(self._gpus.read_gpus(now)))
            values.update(self._memory(self._gpus.memory, ranks))
            values.update({f"xid:{place}": float(number) for place, number in self._xids.read_xids().items()})
        self._rates.turn()
        told: dict[str, Any] = {
            "at": round(time.time(), 1),
            "values": {k: metrics.round_value(v) for k, v in values.items()},
        }
        return {**told, "emulated": True} if self.emulated else told

    def close(self) -> None:
        """Close all files."""
        self._files.close()

    def _memory(self, memory: Mapping[int, float], ranks: Mapping[int, int]) -> dict[str, float]:
        """Return how much GPU memory the processes of each rank have, where the driver names them by the numbers that
        they have here (in a container it may not)."""
        found: dict[str, float] = {}
        for pid, size in memory.items():
            rank = self._ranks.processes.get(pid)
            if rank in ranks:
                key = f"rank_gpu_memory:{rank}"
                found[key] = found.get(key, 0.0) + size
        return found


def _flatten(readings: GpuReadings) -> dict[str, float]:
    return {f"{name}:{place}": value for place, told in readings.items() for name, value in told.items()}
