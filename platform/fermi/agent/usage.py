"""Measures what workers use: their processes, their GPUs, and the host."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fermi.telemetry import sampler
from fermi.telemetry.aggregation import SampleAggregator
from fermi.telemetry.metrics import GPU, METRICS, RANK, parse_key

NO_USAGE = dict.fromkeys(("gpuUtilization", "gpuMemoryUsedMb", "gpuMemoryTotalMb", "cpuPercent", "memoryUsedMb"))


class UsageSampler:
    """Takes samples with `fermi.telemetry`, as everywhere. `folders`: where ranks read and write."""

    def __init__(self, folders: Iterable[str] = (), *, emulated: bool = False) -> None:
        self._sampler = sampler.TelemetrySampler(folders, "" if emulated else None)
        self._folding = SampleAggregator()
        self.told: dict[str, dict[str, Any]] = {}
        """The newest quarter of a minute of telemetry by worker: values of its GPU and rank; the first worker also has
        the host's."""

    def sample(self, workers: Iterable[tuple[str, int | None, Mapping[str, Any] | None]]) -> dict[str, dict[str, Any]]:
        """Return the current usage of each worker (id, GPU index, its rank's identity), by id."""
        workers = list(workers)
        pids = {place: leader["pid"] for place, (_, _, leader) in enumerate(workers) if leader and leader.get("pid")}
        sample = self._sampler.sample(pids, {place: place for place in pids})
        if folded := self._folding.add(sample):
            self.told = {worker: told for worker, told in self._parts(workers, folded) if told["values"]}
        return {worker: _build_usage(sample["values"], place, gpu) for place, (worker, gpu, _) in enumerate(workers)}

    @staticmethod
    def _parts(
        workers: Sequence[tuple[str, int | None, Mapping[str, Any] | None]], sample: Mapping[str, Any]
    ) -> Iterable[tuple[str, dict[str, Any]]]:
        for place, (worker, gpu, leader) in enumerate(workers):
            values = {}
            for key, value in sample["values"].items():
                name, index = parse_key(key) or ("", "")
                of = METRICS[name].subject if name else ""
                if of == RANK and index == str(place) and leader is not None and leader.get("rank") is not None:
                    values[f"{name}:{leader['rank']}"] = value
                elif of == GPU and index == str(place if gpu is None else gpu):
                    values[f"{name}:0"] = value
                elif of not in (RANK, GPU) and place == 0:
                    values[key] = value
            yield worker, {**sample, "values": values}


def _build_usage(values: Mapping[str, float], place: int, gpu: int | None) -> dict[str, Any]:
    def whole(key: str, unit: int = 0) -> int | None:
        return int(values[key]) >> unit if key in values else None

    found = dict(NO_USAGE)
    if gpu is not None:
        found.update(gpuUtilization=whole(f"gpu:{gpu}"), gpuMemoryUsedMb=whole(f"gpu_memory:{gpu}", 20),
                     gpuMemoryTotalMb=whole(f"gpu_memory_total:{gpu}", 20))  # fmt: skip
    if f"rank_memory:{place}" in values:
        cpu = values.get(f"rank_cpu:{place}", 0.0)
        found.update(cpuPercent=round(cpu, 1), memoryUsedMb=whole(f"rank_memory:{place}", 20))
    return found
