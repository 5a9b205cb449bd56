"""What the probe costs a rank: one process trains with and without it alternately, so that nothing else differs.

python -m bench.pulse <folder>      that process, which was given a page
"""

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.table import Figure, FigureTarget
from bench.timing import measure_in_turns
from fermi.probe import setup

STEP, STEPS, ROUNDS, STARTS = 0.005, 40, 40, 15


def measure() -> Iterator[Figure]:
    with TemporaryDirectory() as folder:
        given = setup.create_rank_files()
        words = [sys.executable, "-m", "bench.pulse", folder]
        env = {**os.environ, **given.environment(os.environ), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(words, env=env, pass_fds=given, stdout=subprocess.PIPE, check=True)
        found = json.loads(done.stdout)
    plain = found["without"]
    yield Figure(
        "processor time of a 5 ms step",
        plain * found["ratio"],
        "ms",
        plain,
        "without",
        FigureTarget(1.01, applies_to="ratio"),
    )
    yield Figure("of it the hook's own", found["hook"], "ms")
    yield Figure("memory of a rank that trains", found["memory"], "KiB", target=FigureTarget(1024))
    starts = measure_in_turns(STARTS, with_=lambda: _measure_start(given), without=lambda: _measure_start(None))
    yield Figure(
        "start of an interpreter that imports nothing",
        starts["with_"] * 1000,
        "ms",
        starts["without"] * 1000,
        "without",
    )
    given.close()


def _measure_start(given: setup.RankFiles | None) -> float:
    env = dict(os.environ) if given is None else {**os.environ, **given.environment(os.environ)}
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], env=env, pass_fds=given or (), check=True)
    return time.perf_counter() - began


def _measure_training(folder: str) -> dict[str, float]:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from fermi.probe.collectives import CollectiveWatcher
    from fermi.probe.start import start

    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
    model = DistributedDataParallel(torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    batch = torch.ones(256, 256)

    def steps(count: int, computing: int) -> float:
        """Processor seconds of a step, of all threads."""
        began = time.process_time()
        for _ in range(count):
            for _ in range(computing):
                batch @ batch
            model(batch).sum().backward()
            optimizer.step()
        return (time.process_time() - began) / count

    once = min(steps(20, 0) for _ in range(3))
    each = (min(steps(20, 20) for _ in range(3)) - once) / 20
    computing = max(1, round((STEP - once) / each))
    steps(STEPS, computing)
    gc.collect()
    before = _read_private_kib()
    pulse = start()
    assert pulse is not None
    assert pulse.advance()
    hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
    ours = dict(hooks)
    assert ours

    def watched() -> float:
        watch = CollectiveWatcher(pulse)
        hooks.update(ours)
        watch.start()
        seconds = steps(STEPS, computing)
        watch.stop()
        hooks.clear()
        return seconds

    watched()
    gc.collect()
    memory = _read_private_kib() - before
    hooks.clear()
    pairs = [(watched(), steps(STEPS, computing)) for _ in range(ROUNDS)]
    (hook,) = ours.values()
    began = time.process_time()
    for _ in range(1000):
        hook(optimizer, (), {})
    return {
        "without": median(plain for _, plain in pairs) * 1000,
        "ratio": median(with_ / plain for with_, plain in pairs),
        "hook": time.process_time() - began,  # of a thousand: milliseconds of one
        "memory": memory,
    }


def _read_private_kib() -> float:
    """Return the KiB that no other process shares."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith("Private_"))


if __name__ == "__main__":
    print(json.dumps(_measure_training(sys.argv[1])))
