"""What it costs to keep what 1,000 nodes of 8 GPUs use, every metric of each, and to read it, on a private PostgreSQL
(without fsync, like that of the tests: what counts here is processor time)."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

from bench.scratch import ROOT, environment, scratch
from bench.table import Figure, Target
from tests import services


def measure() -> Iterator[Figure]:
    with scratch() as data:
        env = environment(data, **services.separate(), BENCH_POSTGRES=str(os.getpid()))
        command = [sys.executable, "-m", "bench.inside", "telemetry", "240"]
        found = json.loads(subprocess.run(command, env=env, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    written = found["writer"] + found["postgres"]
    yield Figure("series", found["series"], "")
    yield Figure("values written", found["values"], "/s")
    yield Figure("the writer's processor", found["writer"], "cores")
    yield Figure("PostgreSQL's processor", found["postgres"], "cores")
    yield Figure("folding, both processors", found["folding"], "cores")
    yield Figure("writing and folding, both processors", written + found["folding"], "cores", target=Target(0.3))
    yield Figure("the writer's memory for it", found["memory"], "MiB")
    yield Figure("a node's day, in quarter minutes", found["day"] / 2**20, "MiB")
    yield Figure("… against 4 bytes a value", found["day"] / 2**20, "MiB", found["plain"] / 2**20, "plain")
    yield Figure("all that is ever kept of a node", found["ever"] / 2**20, "MiB")
    yield Figure("utilisation of 64 GPUs over a week", found["chart"] * 1e3, "ms", target=Target(200))
    yield Figure("… eight metrics of each", found["metrics"] * 1e3, "ms")
    yield Figure("… over an hour that was not folded yet", found["hour"] * 1e3, "ms", target=Target(200))
    yield Figure("the newest values of 512 ranks", found["newest"] * 1e3, "ms", target=Target(200))
