"""Why a node's ranks failed, where only their own machine can tell, and only at the time. Standard library only, Python
3.9 or later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fermi.runner import ports, room

PORT_BLAMED_SECONDS = 120.0
"""Within so long of the start, a rank's failure is blamed on its port if somebody else listens there: what imports for
longer than that is rare, and what fails later has had its port."""


def port_taken(port: int | None, age: float) -> dict[str, Any] | None:
    """By somebody else, where rank 0 is to listen. To be asked while nothing of ours lives. `age`: seconds since the
    node began."""
    if port is None or ports.is_free(port) or age > PORT_BLAMED_SECONDS:
        return None
    return {"code": "MASTER_PORT_TAKEN", "port": port, "holder": ports.holder(port) or None}


def disk_full(spec: dict[str, Any], folders: Iterable[str], rank: int) -> dict[str, Any] | None:
    """Of those that a failed rank writes to, and of `folders`."""
    logs = [rank["log"].rpartition("/")[0] for rank in spec["ranks"] if "log" in rank]
    checked = [spec["env"].get("FERMI_CHECKPOINT_DIR", ""), *logs[:1], *folders, spec["cwd"]]
    found = room.full([folder for folder in checked if folder])
    return {"code": "DISK_FULL", **found, "rank": rank} if found else None
