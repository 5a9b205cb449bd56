"""`python -m bench [section …]`; without names, all of them."""

import os
import platform
import sys
import time
import traceback
from importlib import import_module

from rich.console import Console

from bench import table

SECTIONS = (
    "preview",
    "sweep",
    "api",
    "launch",
    "recovery",
    "stream",
    "idle",
    "memory",
    "logs",
    "kubernetes",
    "gang",
    "workers",
    "scaling",
    "loading",
    "pulse",
    "sharing",
    "schedule",
    "overview",
    "telemetry",
    "doors",
    "code",
)


def main(names: list[str]) -> int:
    if unknown := [name for name in names if name not in SECTIONS]:
        print(f"no such section: {', '.join(unknown)}; there are {', '.join(SECTIONS)}", file=sys.stderr)
        return 2
    console = Console(width=None if sys.stdout.isatty() else 140)
    busy = os.getloadavg()[0]
    done, code = [], 0
    for name in names or SECTIONS:
        began, figures = time.monotonic(), []
        try:
            for figure in import_module(f"bench.{name}").measure():
                figures.append(figure)
        except Exception:  # what else can be measured still is
            traceback.print_exc()
            code = 1
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        done.append((name, figures))
    table.show(done, console)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    console.print(f"{cores} cores, {memory:.0f} GiB, Python {platform.python_version()}; load before: {busy:.1f}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
