"""`python -m tests.faults.catalogue [name …] [--healthy N]`: prints the table, and exits by the bars."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.catalogue import registry, report, trial
from tests.faults.catalogue.answer import format_diagnosis
from tests.faults.catalogue.lab import FaultLab
from tests.faults.catalogue.trial import Result

OUT = Path(__file__).resolve().parents[3] / "build" / "faults"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("names", nargs="*", help="of faults; all of them by default")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("JOBS", "4")), help="so many at a time")
    parser.add_argument("--healthy", type=int, default=int(os.environ.get("HEALTHY", "0")), help="so many healthy runs")
    parser.add_argument("--no-faults", action="store_true", help="healthy runs alone")
    asked = parser.parse_args()
    wanted = asked.names or os.environ.get("ONLY", "").replace(",", " ").split()
    faults = [] if asked.no_faults else registry.load_faults(wanted)
    count = asked.healthy or (100 if asked.no_faults else 0)
    runs = registry.choose_healthy_runs(count, wanted if asked.no_faults else ())
    began = time.monotonic()
    OUT.mkdir(parents=True, exist_ok=True)
    with FaultLab() as fault_lab:
        left_out = [(name, why) for name, part in faults if (why := part.needs())]
        absent = {name for name, _ in left_out}
        together = [(name, part) for name, part in faults if name not in absent and not part.alone]
        alone = [(name, part) for name, part in faults if name not in absent and part.alone]
        found = list(
            run_each([lambda n=name, p=part: trial.try_fault(fault_lab, n, p) for name, part in together], asked.jobs)
        )
        found += run_each([lambda n=name, p=part: trial.try_fault(fault_lab, n, p) for name, part in alone], 1)
        well = list(
            run_each([lambda n=name, p=part: trial.try_healthy_run(fault_lab, n, p) for name, part in runs], asked.jobs)
        )
    for result in found:
        (OUT / f"{result.name}.json").write_text(format_diagnosis(result.said))
        (OUT / f"{result.name}.log").write_text(result.printed)
    (OUT / "table.json").write_text(json.dumps([summarize_result(one) for one in [*found, *well]], indent=1))
    print(f"\n{os.sysconf('SC_NPROCESSORS_ONLN')} processors, {time.monotonic() - began:.0f} s\n")
    for name, why in left_out:
        print(f"left out: {name}: {why}")
    return report.print_report(found, well)


def run_each(todo: list[Callable[[], Result]], jobs: int) -> Iterator[Result]:
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        for result in pool.map(lambda one: one(), todo):
            print(report.format_row(result), flush=True)
            yield result


def summarize_result(result: Result) -> dict[str, object]:
    return {"name": result.name, "right": result.right, "seconds": result.seconds, "said": result.said.short,
            "lacks": result.lacks, "note": result.note, "wall": round(result.wall, 1)}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
