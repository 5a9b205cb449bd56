"""Results of earlier runs: `history.json`, in this folder.

It contains only what may be compared between machines: a ratio to something measured in the same run, or, where a
figure stands alone, its share of its bound. `python -m bench --keep NAME` stores the results of a release.
"""

import json
import os
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.table import Figure
from bench.temp_platform import ROOT

HISTORY_FILE = Path(__file__).with_name("history.json")

Sections = Iterable[tuple[str, list[Figure]]]


def load_last_run(path: Path = HISTORY_FILE) -> tuple[str, dict[str, float]]:
    """Return the name of the newest stored run, and each figure's ratio by `section: figure`."""
    runs = _load_runs(path)
    return (runs[-1]["name"], runs[-1]["ratios"]) if runs else ("", {})


def save_run(name: str, sections: Sections, path: Path = HISTORY_FILE) -> None:
    """Store a run under `name`; results of an earlier run of that name stay where this one measured nothing."""
    runs = _load_runs(path)
    ratios: dict[str, float] = next((run["ratios"] for run in runs if run["name"] == name), {})
    run = {
        "name": name,
        "commit": _read_commit(),
        "measured": datetime.now(UTC).date().isoformat(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "ratios": dict(sorted({**ratios, **collect_values(sections)}.items())),
    }
    runs = [*(run for run in runs if run["name"] != name), run]
    path.write_text(json.dumps(runs, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def collect_values(sections: Sections) -> dict[str, float]:
    return {
        make_key(section, figure): float(f"{measure:.3g}")
        for section, figures in sections
        for figure in figures
        if (measure := figure.measure) is not None
    }


def make_key(section: str, figure: Figure) -> str:
    return f"{section}: {figure.name}"


def _load_runs(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def _read_commit() -> str:
    """Return the commit; an empty string where the tree is no checkout."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
