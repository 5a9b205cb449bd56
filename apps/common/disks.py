"""Free space of the platform's disks, and whether they can be written to."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

NEARLY_FULL_SHARE = 0.9


def read_free_space(path: str) -> dict[str, Any]:
    """Return `free` and `total` in bytes for an unprivileged user; empty if the path cannot be read."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return {}
    return {"free": usage.free, "total": usage.total}


def check_writable(folder: Path) -> None:
    """Write and sync a temporary file in the folder. Raises OSError."""
    with tempfile.TemporaryFile(dir=folder, prefix=".ready-") as probe:
        probe.write(b"x" * 4096)
        probe.flush()
        os.fsync(probe.fileno())


def find_nearly_full(folder: Path) -> dict[str, Any]:
    """Return path, percentage in use and sizes of a disk that is nearly full; empty if it is not."""
    found = read_free_space(str(folder))
    if not found or not found["total"] or found["free"] > found["total"] * (1 - NEARLY_FULL_SHARE):
        return {}
    return {"path": str(folder), "percent": round(100 * (1 - found["free"] / found["total"])), **found}
