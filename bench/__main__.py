"""Run `python -m bench [--keep NAME] [--all] [section …]`; without sections, all but the rare ones, and a line for each
target alone. `--keep` writes the ratios to history.json, with which the next runs are compared."""

import argparse
import os
import platform
import sys
import time
import traceback
from importlib import import_module

from rich.console import Console

from bench import history, live_platform, table, temp_platform
from tests.services import MissingServerError

ON_ONE_PLATFORM = ("idle", "stream", "launch", "script", "logs", "code", "recovery", "kubernetes", "gang", "inside")
"""One after the other on `live.shared()`: first the one that wants it new, last those that leave clusters behind."""
SECTIONS = (
    *ON_ONE_PLATFORM,
    "preview",
    "sweep",
    "burst",
    "size",
    "api",
    "streams",
    "workers",
    "scaling",
    "loading",
    "pulse",
    "sharing",
    "schedule",
    "overview",
    "telemetry",
    "doors",
    "lists",
    "curves",
    "runs",
    "standby",
    "edit",
    "lines",
)
RARELY = {"sweep", "scaling", "loading", "sharing", "edit", "runs"}
"""Without a target, or minutes of making rows: only when they are named, or with `--all`."""


os.environ.setdefault("FERMI_TRACEABLE", "1")  # the memory of the platform's processes is read from /proc


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures the platform.")
    parser.add_argument("--keep", metavar="NAME", help="write the ratios to history.json, under this name")
    parser.add_argument("--all", action="store_true", help=f"with {', '.join(sorted(RARELY))}")
    parser.add_argument("sections", nargs="*", metavar="section", help=f"of {', '.join(SECTIONS)}")
    asked = parser.parse_args(words)
    if unknown := [name for name in asked.sections if name not in SECTIONS]:
        parser.error(f"no such section: {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    console = Console(width=None if sys.stdout.isatty() else 150)
    busy = os.getloadavg()[0]
    done, left_out, code = [], [], 0
    if not asked.sections:
        temp_platform.prepare_databases()
    for name in asked.sections or [name for name in SECTIONS if asked.all or name not in RARELY]:
        began, figures = time.monotonic(), []
        if name not in ON_ONE_PLATFORM:
            live_platform.close_shared_platform()
        try:
            for figure in import_module(f"bench.{name}").measure():
                figures.append(figure)
        except MissingServerError as missing:
            left_out.append(f"left out: {name}: {missing}")
        except Exception:  # what else can be measured still is
            traceback.print_exc()
            live_platform.close_shared_platform()
            code = 1
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        done.append((name, figures))
    live_platform.close_shared_platform()
    table.print_table(done, console, history.load_last_run(), details=asked.all or bool(asked.sections))
    for line in left_out:
        console.print(line)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    console.print(f"{cores} cores, {memory:.0f} GiB, Python {platform.python_version()}; load before: {busy:.1f}")
    if asked.keep:
        history.save_run(asked.keep, done)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
