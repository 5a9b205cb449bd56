"""How long telemetry's questions to NVML take: `python -m tests.gpu.nvml_latency`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pynvml  # type: ignore[import-untyped]

from fermi.telemetry.gpus import NvmlReader
from fermi.telemetry.proc_files import CounterRates

SAMPLES = 10


class Timed:
    """The library, with the seconds that each function took."""

    def __init__(self) -> None:
        self.took: dict[str, list[float]] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(pynvml, name)
        if not name.startswith("nvml") or not callable(found):
            return found
        return self._timed(name, found)

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args)
            finally:
                self.took.setdefault(name, []).append(time.perf_counter() - began)

        return timed


def main() -> None:
    library, began = Timed(), time.perf_counter()
    gpus = NvmlReader(None, CounterRates(), library)
    told: dict[str, Any] = {"begin": time.perf_counter() - began, "found": gpus.read_gpus(time.monotonic())}
    library.took.clear()
    began, processor = time.perf_counter(), time.process_time()
    for _ in range(SAMPLES):
        gpus.read_gpus(time.monotonic())
    told["sample"] = (time.perf_counter() - began) / SAMPLES
    told["processor"] = (time.process_time() - processor) / SAMPLES
    told["asked"] = {name: sum(each) / SAMPLES for name, each in library.took.items()}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
