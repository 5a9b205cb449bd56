"""500 tasks that are posted at once on one cluster: time until all of them run, each started by one pass.

The rows are stored as the API stores them, each with an environment of its own, on the embedded database. The engine is
simulated (`bench.replay_engine`); creating a gang takes it a while, and it reports what it creates, as a cluster does:
every such report is a wake-up. Eight threads take messages, as a worker's do, and a sweep is sent every two seconds.
"""

import json
from collections.abc import Iterator

from bench.table import Figure, FigureTarget
from bench.temp_platform import make_temp_folder, run_in_django

TASKS = 500


def measure() -> Iterator[Figure]:
    with make_temp_folder() as data:
        found = json.loads(run_in_django(data, "burst", str(TASKS)))
    yield Figure(f"passes that were repeated, {TASKS} tasks at once", found["repeated"], "", target=FigureTarget(0))
    yield Figure("passes that failed", found["failed"], "", target=FigureTarget(0))
    yield Figure("until all of them run", found["seconds"], "s")
