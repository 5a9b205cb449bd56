"""Cost of measuring a node (without its GPUs' driver), and of storing and reading every metric of 1,000 nodes with 8
GPUs, on a private PostgreSQL (without fsync, like that of the tests: what counts here is processor time)."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

from bench.table import Figure, FigureTarget
from bench.temp_platform import ROOT, build_environment, make_temp_folder, run_postgresql
from fermi.telemetry.metrics import PERIOD_SECONDS
from fermi.telemetry.sampler import TelemetrySampler

RANKS, HELPERS, SAMPLES = 8, 4, 60
RANK = f"""
import subprocess, sys
command = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]
helpers = [subprocess.Popen(command) for _ in range({HELPERS})]
print(flush=True)
sys.stdin.read()
"""


def measure() -> Iterator[Figure]:
    yield from measure_sampling()
    yield from measure_storage()


def measure_sampling() -> Iterator[Figure]:
    """Return the processor time of one sample; in between the caches do something else."""
    share = FigureTarget(0.2)
    yield Figure("measuring a node", _take_samples({}), "% of a core", target=share)
    with ExitStack() as stack:
        command = [sys.executable, "-S", "-c", RANK]
        ranks = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            for _ in range(RANKS)
        ]
        for rank in ranks:
            assert rank.stdout
            rank.stdout.readline()
        leaders = {number: rank.pid for number, rank in enumerate(ranks)}
        yield Figure(
            f"… with {RANKS} ranks of {1 + HELPERS} processes", _take_samples(leaders), "% of a core", target=share
        )


def _take_samples(leaders: dict[int, int]) -> float:
    sampler = TelemetrySampler([str(ROOT), "/tmp"], visible="")
    places = {rank: rank for rank in leaders}
    sampler.sample(leaders, places)
    began = time.process_time()
    for _ in range(SAMPLES):
        time.sleep(0.02)
        sampler.sample(leaders, places)
    taken = time.process_time() - began
    sampler.close()
    return 100 * taken / SAMPLES / PERIOD_SECONDS


def measure_storage() -> Iterator[Figure]:
    with make_temp_folder() as data, run_postgresql() as servers:
        env = build_environment(data, **servers)
        command = [sys.executable, "-m", "bench.in_django", "telemetry", "30"]
        found = json.loads(subprocess.run(command, env=env, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    written = found["writer"] + found["postgres"]
    yield Figure("series", found["series"], "")
    yield Figure("values written", found["values"], "/s")
    yield Figure("the writer's processor", found["writer"], "cores")
    yield Figure("PostgreSQL's processor", found["postgres"], "cores")
    yield Figure("folding, both processors", found["folding"], "cores")
    yield Figure("writing and folding, both processors", written + found["folding"], "cores", target=FigureTarget(0.3))
    yield Figure("the writer's memory for it", found["memory"], "MiB")
    yield Figure("a node's day, in quarter minutes", found["day"] / 2**20, "MiB")
    yield Figure("… against 4 bytes a value", found["day"] / 2**20, "MiB", found["plain"] / 2**20, "plain")
    yield Figure("all that is ever kept of a node", found["ever"] / 2**20, "MiB")
    yield Figure("utilisation of 64 GPUs over a week", found["chart"] * 1e3, "ms", target=FigureTarget(200))
    yield Figure("… eight metrics of each", found["metrics"] * 1e3, "ms")
    yield Figure("… over an hour that was not folded yet", found["hour"] * 1e3, "ms", target=FigureTarget(200))
    yield Figure("the newest values of 512 ranks", found["newest"] * 1e3, "ms", target=FigureTarget(200))
    yield Figure("a scrape of 8,000 GPUs, processor", found["scrape"] * 1e3, "ms", target=FigureTarget(1000))
    yield Figure("… PostgreSQL's", found["scrape_postgres"] * 1e3, "ms")
    yield Figure("… its length", found["scraped"] / 2**20, "MiB")
