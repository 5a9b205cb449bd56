"""`make down`: ends the platform of a data directory and all its training, in whatever state they are."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from server import paths
from server.up import console, running_tasks, supervisor
from server.up.child import build_environment
from server.up.pidfile import Pidfile, wait_until_gone


def stop_platform(data: Path) -> int:
    """Stop training and the platform and return 0; with nothing running, say so.

    Training first, so that a running platform sees it end and stores that; what the platform may have started meanwhile
    is stopped after it.
    """
    if not data.is_dir():
        console.print_line(f"nothing to stop: {data} does not exist.")
        return 0
    stopped = stop_training(data)
    record = Pidfile(data)
    if platform := record.supervisor():
        platform.signal(signal.SIGTERM)
        wait_until_gone([platform], 2 * supervisor.GRACE_SECONDS + 5)
        console.print_line("platform stopped")
    if left := record.stop_leftovers():
        console.print_line(f"ended what a killed platform had left running: {', '.join(left)}")
    stopped |= {*running_tasks.stop_tasks(data)}
    console.print_line(f"training stopped: {', '.join(sorted(stopped))}" if stopped else "no training was running")
    return 0


def stop_training(data: Path) -> set[str]:
    """Stop all tasks, those on clusters included, and return the ids of those that ended."""
    return {*_ask_tasks_to_stop(data), *running_tasks.stop_tasks(data)}


def _ask_tasks_to_stop(data: Path) -> list[str]:
    """Request the stop of all tasks and return their ids. Without this the next start would take their end for a
    failure, and restart them."""
    if not (os.environ.get("DATABASE_URL") or (data / "fermi.sqlite3").exists()):
        return []
    done = subprocess.run(
        [sys.executable, "manage.py", "stop_all"], cwd=paths.ROOT, check=False, capture_output=True,
        encoding="utf-8", errors="replace",
        env=build_environment(FERMI_DATA=str(data), FERMI_LOG_LEVEL="ERROR"),
    )  # fmt: skip
    if done.returncode:
        console.print_line(f"the tasks could not be asked to stop; they will start again:\n{done.stderr}", fault=True)
        return []
    return done.stdout.split()
