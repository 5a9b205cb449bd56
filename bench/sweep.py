"""A sweep over many running tasks, compared with reading their rows alone.

The rows are created directly. What the local engine observes is recorded: each task has a run directory as a node
runner of two ranks leaves it, and its status file names a process that really lives (this one), so that an observation
reads the same files and the same `/proc` entry as a real runner's; only the thousand runners themselves are missing.
One process and one thread sweep, on the embedded database.
"""

import json
from collections.abc import Iterator

from bench.table import Figure
from bench.temp_platform import make_temp_folder, run_in_django

TASKS = 1000


def measure() -> Iterator[Figure]:
    with make_temp_folder() as data:
        found = json.loads(run_in_django(data, "sweep", str(TASKS)))
    for label, name in (("nothing new", "quiet"), ("each rank grid changed", "news")):
        rate = TASKS / found[name]
        yield Figure(f"decisions/s, {TASKS:,} running tasks, {label}", rate, "/s", TASKS / found["load"], "rows read")
        yield Figure(f"queries of that sweep, {label}", found[f"{name}_queries"], "")
