"""Ends node runners that may have begun, may be about to, or may be dead: nothing of them comes afterwards."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fermi.runner import files, processes

RUNNER_OVERDUE_SECONDS = 10.0
"""A runner that is this late in ending its ranks after their grace is killed itself."""


def end(run_dir: Path, specs: Iterable[Path], grace_seconds: float, still_seconds: float | None = None) -> None:
    """Asks and returns; to be called until nothing is left. A second, shorter grace wins. A spec that has not begun
    cannot begin any more. `still_seconds`: ranks that do nothing for so long need no grace."""
    stop = files.read_json(str(run_dir / "stop.json"))
    now = time.time()
    if stop is None or now + grace_seconds < stop["kill_at"]:
        stop = {"grace_seconds": grace_seconds, "kill_at": now + grace_seconds, "still_seconds": still_seconds}
        try:
            files.write_atomically(str(run_dir / "stop.json"), stop)
        except OSError:  # the disk is full: runners can be asked without it, but the grace is the spec's own
            if not _ask_without_a_file(specs):
                raise
            return
    overdue = now > stop["kill_at"] + RUNNER_OVERDUE_SECONDS
    for spec in specs:
        _end_one(spec, overdue)


def _ask_without_a_file(specs: Iterable[Path]) -> bool:
    """False where one has not begun, and so might begin after all. What is over needs no asking."""
    asked = True
    for spec in specs:
        written = files.read_json(files.Paths(str(spec)).status)
        if written is None:
            asked = False
        elif written["state"] != "exited" and written["boot_id"] == processes.boot_id():
            _signal(written, signal.SIGTERM)
    return asked


def _signal(written: Mapping[str, Any], number: signal.Signals) -> None:
    """To the runner; where it is gone, what it left behind is killed."""
    if not processes.send_signal(written["runner"], number):
        for stray in processes.session_members(written["ranks"]):
            processes.send_signal(stray, signal.SIGKILL)


def make_unstartable(spec: Path) -> None:
    """Writes the end of a node that never began, under its lock: a runner that comes late finds it and goes away. Where
    a runner has just taken the lock, it will find `stop.json`."""
    paths = files.Paths(str(spec))
    lock = files.try_lock(paths.lock)
    if lock is None:
        return
    try:
        if files.read_json(paths.status) is None:
            content = json.loads(spec.read_text(encoding="utf-8"))
            files.write_atomically(paths.status, files.first_status(content["name"], content["node_rank"], "exited"))
    finally:
        os.close(lock)


def _end_one(spec: Path, overdue: bool) -> None:
    written = files.read_json(files.Paths(str(spec)).status)
    if written is None:
        make_unstartable(spec)
    elif written["state"] != "exited" and written["boot_id"] == processes.boot_id():
        _signal(written, signal.SIGKILL if overdue else signal.SIGUSR1)
