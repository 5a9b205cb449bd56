"""Processor time and memory of an idle platform, over fifteen seconds."""

import time
from collections.abc import Iterator

from bench import live_platform, procfs
from bench.table import Figure, FigureTarget

PROCESS_NAMES = ("web", "worker", "beat", "watch")
SECONDS = 15.0


def measure() -> Iterator[Figure]:
    running = live_platform.get_shared_platform()
    standing_by = live_platform.wait_for_stand_by(running)
    pids = {name: int(entry["pid"]) for name, entry in running.processes().items()}
    ours = [pids[name] for name in PROCESS_NAMES]
    rest = [pid for name, pid in pids.items() if name not in PROCESS_NAMES]
    before = [procfs.read_cpu_seconds(some) for some in (ours, rest, [standing_by])]
    time.sleep(SECONDS)
    after = [procfs.read_cpu_seconds(some) for some in (ours, rest, [standing_by])]
    busy = [100 * (end - begin) / SECONDS for begin, end in zip(before, after, strict=True)]
    together = procfs.read_memory(ours)
    yield Figure("web + worker + beat + watcher, resident", together.resident, "MiB", target=FigureTarget(400))
    yield Figure("the same, proportional (shared pages once)", together.proportional, "MiB", target=FigureTarget(400))
    yield Figure("the same, processor", busy[0], "%", target=FigureTarget(2))
    for name in PROCESS_NAMES:
        yield Figure(f"of it {name}, resident", procfs.read_memory([pids[name]]).resident, "MiB")
    yield Figure("broker + supervisor, resident", procfs.read_memory(rest).resident, "MiB")
    yield Figure("broker + supervisor, processor", busy[1], "%")
    yield Figure("the process that stands by, proportional", procfs.read_memory([standing_by]).proportional, "MiB")
    yield Figure("the process that stands by, processor", busy[2], "%")
