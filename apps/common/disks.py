"""How full the platform's disks are, and whether they can be written to."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

NEARLY_FULL = 0.9


def room(path: str) -> dict[str, Any]:
    """`free` and `total`, in bytes, for an ordinary user; empty when the path cannot be looked at from here."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return {}
    return {"free": usage.free, "total": usage.total}


def write_to(folder: Path) -> None:
    """Proves that the folder's disk takes what is written, down to the device. Raises OSError."""
    with tempfile.TemporaryFile(dir=folder, prefix=".ready-") as probe:
        probe.write(b"x" * 4096)
        probe.flush()
        os.fsync(probe.fileno())


def nearly_full(folder: Path) -> dict[str, Any]:
    """Path, percentage in use and figures of a disk that is nearly full; empty when it is not."""
    found = room(str(folder))
    if not found or not found["total"] or found["free"] > found["total"] * (1 - NEARLY_FULL):
        return {}
    return {"path": str(folder), "percent": round(100 * (1 - found["free"] / found["total"])), **found}
