"""Keeps the caches of libraries on this host below their limit: `homes/<project>/.cache` in the agent's folder."""

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from fermi.agent.runs import RankRun
from fermi.engines import library_cache
from fermi.jobs.user_paths import HOMES_FOLDER
from fermi.schema.humanize import format_bytes

log = logging.getLogger(__name__)


def clean_caches(state: Path, max_bytes: int, list_runs: Callable[[], Iterable[RankRun]]) -> None:
    """Clean the cache of each project below the agent's folder `state`. `list_runs` returns the runs of this host."""
    homes = state / HOMES_FOLDER
    try:
        projects = sorted(os.listdir(homes))
    except OSError:
        return
    for project in projects:
        home = f"{HOMES_FOLDER}/{project}"
        try:
            done = library_cache.clean_cache(
                homes,
                project,
                max_bytes,
                lambda home=home: _find_busy_since(home, list_runs()),  # type: ignore[misc]
            )
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                log.warning("%s: its cache is not cleaned: %s", home, error.strerror)
            continue
        if done.removed:
            size = format_bytes(sum(unit.size for unit in done.removed))
            log.info("%s: removed %d of its cache, %s", home, len(done.removed), size)
        if done.excess:
            log.warning("%s: its cache is %s above its limit, in use", home, format_bytes(done.excess))


def _find_busy_since(home: str, runs: Iterable[RankRun]) -> float | None:
    """Return when the first run with this home was ordered of which something may still run; 0 if that is unknown."""
    began = [
        _read_began(run) for run in runs if not run.is_over and run.spec.get("home", f"{HOMES_FOLDER}/default") == home
    ]
    return min(began, default=None)


def _read_began(run: RankRun) -> float:
    """Return when the run's plan was written, before anything of it was started."""
    try:
        return (run.folder / "files").stat().st_mtime
    except OSError:
        return 0.0
