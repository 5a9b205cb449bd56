"""Reads what a node runner wrote, and compares it with the processes that exist now. Standard library only, Python 3.9
or later."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fermi.runner import files, processes


@dataclass(frozen=True)
class NodeState:
    """State of a node. `absent`: no runner took the spec. `lost`: it died without writing `exited`. `left`: some
    process of it lives. `cause`: why it failed, if the runner knows. `doing`: the current step before the ranks start.
    `asked_at`: when (in unix seconds) it was asked to end by another party than the platform."""

    state: Literal["absent", "starting", "running", "exited", "lost"]
    ranks: Sequence[dict[str, Any]]
    left: bool
    cause: dict[str, Any] | None = None
    asked_at: float | None = None
    doing: dict[str, Any] | None = None


def read_status(spec_path: Path) -> NodeState:
    """Return the state of the node of this spec."""
    paths = files.RunnerPaths(str(spec_path))
    status = files.read_json(paths.status)
    if status is None:
        return NodeState("absent", (), left=_is_locked(paths))
    if status["state"] == "exited":
        return _build_state("exited", status)
    if status["boot_id"] != processes.read_boot_id():
        return _build_state("lost", status)
    if processes.is_alive(status["runner"]):
        return _build_state(status["state"], status, left=True)
    again = files.read_json(paths.status)  # it may have ended well between the two looks
    if again is not None and again["state"] == "exited":
        return _build_state("exited", again)
    return _build_state("lost", status, left=bool(processes.list_session_members(status["ranks"])))


def _build_state(state: Any, status: dict[str, Any], *, left: bool = False) -> NodeState:
    return NodeState(state, status["ranks"], left, status.get("cause"), status.get("asked_at"), status.get("doing"))


def _is_locked(paths: files.RunnerPaths) -> bool:
    """Return True if a runner holds the lock, which may not have written its status yet."""
    lock = files.try_lock(paths.lock)
    if lock is None:
        return True
    os.close(lock)
    return False
