"""What the platform takes while nothing happens, over fifteen seconds."""

import time
from collections.abc import Iterator

from bench import live_platform, procfs
from bench.table import Figure, Target

PARTS = ("web", "worker", "beat", "watch")
SECONDS = 15.0


def measure() -> Iterator[Figure]:
    running = live_platform.shared()
    standing_by = live_platform.wait_for_stand_by(running)
    pids = {name: int(entry["pid"]) for name, entry in running.processes().items()}
    ours = [pids[name] for name in PARTS]
    rest = [pid for name, pid in pids.items() if name not in PARTS]
    before = [procfs.cpu_seconds(some) for some in (ours, rest, [standing_by])]
    time.sleep(SECONDS)
    after = [procfs.cpu_seconds(some) for some in (ours, rest, [standing_by])]
    busy = [100 * (end - begin) / SECONDS for begin, end in zip(before, after, strict=True)]
    together = procfs.memory(ours)
    yield Figure("web + worker + beat + watcher, resident", together.resident, "MiB", target=Target(400))
    yield Figure("the same, proportional (shared pages once)", together.proportional, "MiB", target=Target(400))
    yield Figure("the same, processor", busy[0], "%", target=Target(2))
    for name in PARTS:
        yield Figure(f"of it {name}, resident", procfs.memory([pids[name]]).resident, "MiB")
    yield Figure("broker + supervisor, resident", procfs.memory(rest).resident, "MiB")
    yield Figure("broker + supervisor, processor", busy[1], "%")
    yield Figure("the process that stands by, proportional", procfs.memory([standing_by]).proportional, "MiB")
    yield Figure("the process that stands by, processor", busy[2], "%")
