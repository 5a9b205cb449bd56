"""Runs the checks: `python -m tests.gpu --work FOLDER [--minutes 9] [--only NAME,AREA] [--from NAME] [--list]`.

Prints a line for each check, and goes on after one that failed. The exit code is 0 where none failed. What is left when
the time is up is named, for `--from`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.gpu import machine, report
from tests.gpu.check import AREAS, Check, checks
from tests.gpu.platform import Platform

ROOT = Path(__file__).resolve().parents[2]
CORES_PER_CHECK = 2
FOR_THE_END = 12.0
"""Seconds that are kept for stopping the platform and writing the table."""


@dataclass
class Running:
    check: Check
    process: subprocess.Popen[bytes]
    began: float

    def stop(self) -> int:
        """Ends it with its children; returns its exit code."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait()

    def take(self, work: Path, *, ended: bool) -> dict[str, Any]:
        """Returns the result that the check has left; `ended`: it was ended at its limit."""
        code, path = self.stop(), work / "checks" / f"{self.check.name}.json"
        if path.exists():
            found: dict[str, Any] = json.loads(path.read_text())
            return found
        why = f"ended at its limit of {self.check.limit} s" if ended else f"its process ended with code {code}"
        seconds = round(time.monotonic() - self.began, 2)
        return {"state": "failed", "reasons": [f"{why}; see its log"], "notes": [], "figures": [], "seconds": seconds}


def main() -> int:
    options = _options()
    work: Path = options.work.resolve()
    began, deadline = time.monotonic(), time.monotonic() + options.minutes * 60 - FOR_THE_END
    known = checks()
    chosen = _chosen(known, options)
    if options.list:
        for one in chosen:
            print(f"{one.area:12} {one.name:32} {one.limit:4} s  {one.title}")
        return 0
    for folder in (work / "data", work / "checks"):
        shutil.rmtree(folder, ignore_errors=True)
    (work / "checks").mkdir(parents=True)
    (work / "logs").mkdir(exist_ok=True)
    here = machine.inspect_machine()
    (work / "machine.json").write_text(machine.write(here))
    _say(f"{here.card or 'no GPU'} · driver {here.driver or '-'} · torch {here.packages.get('torch', '-')} · "
         f"CUDA {here.cuda_version or '-'} · {here.cores} cores · {time.monotonic() - began:.1f} s")  # fmt: skip
    about = {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "commit": _commit()}
    results: dict[str, Any] = report.read(work)
    platform = Platform(work / "data")
    port = _start(platform)
    try:
        left = _run_all(
            chosen, work, port, here, deadline, lambda: report.write(work, here, known, results, about), results
        )
    finally:
        if port:
            with suppress(Exception):
                platform.close()
        with suppress(OSError):
            for path in (work / "data").glob("logs/*.log"):
                shutil.copy(path, work / "logs" / f"platform-{path.name}")
            shutil.copy(platform.output, work / "logs" / "platform.log")
    report.write(work, here, known, results, about)
    mine = {one.name: results[one.name] for one in chosen if one not in left}
    counts = {state: sum(one["state"] == state for one in mine.values()) for state in ("passed", "failed", "skipped")}
    _say(", ".join(f"{count} {state}" for state, count in counts.items()) + f" in {time.monotonic() - began:.0f} s")
    if left:
        _say(f"time is up; go on with --from {left[0].name} ({len(left)} left)")
    return 1 if counts["failed"] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu_check", description="Checks what only a machine with a GPU can show.")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "gpu-check", help="folder of data, logs, results")
    parser.add_argument("--minutes", type=float, default=9.0, help="after which no check is begun (default 9)")
    parser.add_argument("--only", default="", help="checks and areas, parted by commas")
    parser.add_argument("--skip", default="", help="checks and areas that are left out, parted by commas")
    parser.add_argument("--from", dest="first", default="", help="the check to begin with")
    parser.add_argument("--list", action="store_true", help="print the checks, run none")
    return parser.parse_args()


def _chosen(known: dict[str, Check], options: argparse.Namespace) -> list[Check]:
    """Raises SystemExit for a name that no check and no area has."""
    only, out = ([word for word in text.split(",") if word] for text in (options.only, options.skip))
    named = [*only, *out, *([options.first] if options.first else [])]
    if unknown := [name for name in named if name not in known and name not in AREAS]:
        raise SystemExit(f"no such check or area: {', '.join(unknown)}; --list prints them")
    rest = list(known.values())
    if options.first:
        first = next(n for n, one in enumerate(rest) if options.first in (one.name, one.area))
        rest = rest[first:]
    return [one for one in rest if (not only or {one.name, one.area} & {*only}) and not {one.name, one.area} & {*out}]


def _start(platform: Platform) -> int:
    """Returns its port, 0 where it did not start; the checks that need none go on."""
    began = time.monotonic()
    try:
        platform.start()
    except Exception:
        traceback.print_exc()
        with suppress(Exception):
            platform.close()
        return 0
    _say(f"the platform serves after {time.monotonic() - began:.1f} s")
    return platform.port


def _run_all(chosen: list[Check], work: Path, port: int, here: machine.Machine, deadline: float, save: Any,
             results: dict[str, Any]) -> list[Check]:  # fmt: skip
    """Runs them in order, several at once where none measures time; returns those for which no time was left."""
    waiting, running, left = list(chosen), list[Running](), list[Check]()
    width = max(1, here.cores // CORES_PER_CHECK)
    try:
        while running or (waiting and time.monotonic() < deadline):
            while waiting and time.monotonic() < deadline and _may_begin(waiting[0], running, width):
                one = waiting.pop(0)
                if why := here.lacks(one.needs):
                    _end(one, {"state": "skipped", "reasons": [why], "notes": [], "figures": [], "seconds": 0}, results)
                else:
                    running.append(_begin(one, work, port))
            for each in list(running):
                now = time.monotonic()
                over = now > each.began + each.check.limit
                if each.process.poll() is None and not over and now < deadline:
                    continue
                running.remove(each)
                if each.process.poll() is None and not over:
                    left.append(each.check)  # the time was up: it failed in nothing
                    each.stop()
                else:
                    _end(each.check, each.take(work, ended=over), results)
                    save()
            time.sleep(0.05)
        return [*left, *waiting]
    finally:
        for each in running:
            with suppress(ProcessLookupError):
                os.killpg(each.process.pid, signal.SIGKILL)


def _may_begin(one: Check, running: list[Running], width: int) -> bool:
    if not running:
        return True
    return not one.alone and len(running) < width and not any(other.check.alone for other in running)


def _begin(one: Check, work: Path, port: int) -> Running:
    with (work / "logs" / f"{one.name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.run_check", one.name, str(work), str(port)], cwd=ROOT,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    return Running(one, process, time.monotonic())


def _end(one: Check, result: dict[str, Any], results: dict[str, Any]) -> None:
    results[one.name] = result
    figures = "; ".join(f"{each['name']} {each['value']} {each['unit']}".strip() for each in result["figures"])
    why = "; ".join(text.splitlines()[0][:300] if text else "" for text in result["reasons"])
    said = " · ".join(part for part in (why, figures) if part)
    _say(f"{result['state']:7} {one.name:28} {result['seconds']:6.1f} s  {said}"[:900])


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _say(text: str) -> None:
    print(f"gpu    | {text}", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
