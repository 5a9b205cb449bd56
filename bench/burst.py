"""500 tasks that are posted at once, on one cluster: until all of them run, each is to be begun by one pass.

The rows are stored as the API stores them, each with an environment of its own, on the embedded database. The engine
is one of which nothing runs (`bench.replay_engine`); making a gang takes it a while, and it tells of what it makes, as
a cluster does: every such word is a hint. Eight threads take messages, as a worker's do, and a sweep is sent every two
seconds.
"""

import json
from collections.abc import Iterator

from bench.table import Figure, Target
from bench.temp_platform import inside, scratch

TASKS = 500


def measure() -> Iterator[Figure]:
    with scratch() as data:
        found = json.loads(inside(data, "burst", str(TASKS)))
    yield Figure(f"passes that were repeated, {TASKS} tasks at once", found["repeated"], "", target=Target(0))
    yield Figure("passes that failed", found["failed"], "", target=Target(0))
    yield Figure("until all of them run", found["seconds"], "s")
