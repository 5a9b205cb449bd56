"""10,000 running tasks of 64 ranks each, on a private PostgreSQL (without fsync, like that of the tests) and Redis:
what a sweep costs, and how soon one worker follows 1,000 changes per second.

The rows are created directly, and the engine is simulated (`bench.replay_engine`). A change counts as followed once it
is stored and published to viewers of the task; the way there is the platform's: the engine's report, a wake-up, a
message, the worker.
"""

import json
import subprocess
import sys
from collections.abc import Iterator

from bench.table import Figure, FigureTarget
from bench.temp_platform import ROOT, build_environment, make_temp_folder, run_postgresql

TASKS = 10_000


def measure() -> Iterator[Figure]:
    with make_temp_folder() as data, run_postgresql() as servers:
        env = build_environment(data, **servers, FERMI_LOG_LEVEL="WARNING")
        command = [sys.executable, "-m", "bench.in_django", "size", str(TASKS)]
        done = subprocess.run(command, env=env, cwd=ROOT, check=True, stdout=subprocess.PIPE)
        found = json.loads(done.stdout)
    yield Figure(f"a sweep, {TASKS:,} running tasks, median", found["sweep"], "s", target=FigureTarget(0.3))
    yield Figure("the same, worst", found["worst"], "s", target=FigureTarget(0.3))
    yield Figure("its statements", found["statements"], "")
    yield Figure("tasks that it looks at", found["looked"], "")
    yield Figure("statements for 1,000 quiet ones more than for 10", found["more"], "", target=FigureTarget(0))
    yield Figure("a sweep that looks at 1,000, all quiet", found["every"], "s", target=FigureTarget(0.3))
    yield Figure("the same, while nobody watches", found["unwatched"], "s")
    yield Figure("changes made", found["made"], "/s")
    yield Figure("changes followed", found["rate"], "/s")
    yield Figure("changes followed within 1 s", found["within"], "%", target=FigureTarget(99, "at least"))
    yield Figure("change → stored and told, median", found["median"] * 1e3, "ms", target=FigureTarget(1000))
    yield Figure("change → stored and told, worst", found["last"] * 1e3, "ms", target=FigureTarget(1000))
    yield Figure("tasks of which something else is stored", found["stored"], "", target=FigureTarget(0))
    yield Figure("a change: the worker's processor", found["worker"] * 1e3, "ms")
    yield Figure("… PostgreSQL's", found["postgres"] * 1e3, "ms")
    yield Figure("… the watcher's share of the way", found["watch"] * 1e3, "ms")
