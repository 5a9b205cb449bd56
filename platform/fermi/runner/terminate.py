"""Stops node runners that may have started, may be about to, or may be dead, so that none of them starts anything
afterwards."""

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
"""A runner that has not ended its ranks so long after their grace period is killed itself."""


def end_runners(run_dir: Path, specs: Iterable[Path], grace_seconds: float, still_seconds: float | None = None) -> None:
    """Request the end and return; call it until nothing is left. A second, shorter grace period wins. A spec that has
    not started cannot start any more. `still_seconds`: ranks that are idle for so long get no grace. Raises OSError if
    nothing can be written."""
    stop = files.read_json(str(run_dir / "stop.json"))
    now = time.time()
    if stop is None or now + grace_seconds < stop["kill_at"]:
        stop = {"grace_seconds": grace_seconds, "kill_at": now + grace_seconds, "still_seconds": still_seconds}
        try:
            files.write_json_atomically(str(run_dir / "stop.json"), stop)
        except OSError:  # the disk is full: runners can be asked without it, but the grace is the spec's own
            if not _request_by_signal(specs):
                raise
            return
    overdue = now > stop["kill_at"] + RUNNER_OVERDUE_SECONDS
    for spec in specs:
        _end_runner(spec, overdue)


def _request_by_signal(specs: Iterable[Path]) -> bool:
    """Return False if one has not started, and so might start after all. Ended ones need no request."""
    asked = True
    for spec in specs:
        written = files.read_json(files.RunnerPaths(str(spec)).status)
        if written is None:
            asked = False
        elif written["state"] != "exited" and written["boot_id"] == processes.read_boot_id():
            _signal_runner(written, signal.SIGTERM)
    return asked


def _signal_runner(written: Mapping[str, Any], number: signal.Signals) -> None:
    """Signal the runner; if it is gone, kill what it left behind."""
    if not processes.send_signal(written["runner"], number):
        for stray in processes.list_session_members(written["ranks"]):
            processes.send_signal(stray, signal.SIGKILL)


def make_unstartable(spec: Path) -> None:
    """Write the end of a node that never started, under its lock: a late runner finds it and exits. If a runner has
    just taken the lock, it will find `stop.json`."""
    paths = files.RunnerPaths(str(spec))
    lock = files.try_lock(paths.lock)
    if lock is None:
        return
    try:
        if files.read_json(paths.status) is None:
            content = json.loads(spec.read_text(encoding="utf-8"))
            files.write_json_atomically(
                paths.status, files.build_first_status(content["name"], content["node_rank"], "exited")
            )
    finally:
        os.close(lock)


def _end_runner(spec: Path, overdue: bool) -> None:
    written = files.read_json(files.RunnerPaths(str(spec)).status)
    if written is None:
        make_unstartable(spec)
    elif written["state"] != "exited" and written["boot_id"] == processes.read_boot_id():
        _signal_runner(written, signal.SIGKILL if overdue else signal.SIGUSR1)
