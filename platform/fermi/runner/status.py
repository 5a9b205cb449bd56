"""What a node runner wrote, checked against the processes that there are now."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fermi.runner import node, processes


@dataclass(frozen=True, slots=True)
class NodeState:
    """`absent`: no runner took the spec. `lost`: it died without writing `exited`. `left`: something of it lives."""

    state: Literal["absent", "starting", "running", "exited", "lost"]
    ranks: Sequence[dict[str, Any]]
    left: bool


def look(spec_path: Path) -> NodeState:
    paths = node.Paths(str(spec_path))
    status = node.read_json(paths.status)
    if status is None:
        return NodeState("absent", (), left=_is_locked(paths))
    if status["state"] == "exited":
        return NodeState("exited", status["ranks"], left=False)
    if status["boot_id"] != node.boot_id():
        return NodeState("lost", status["ranks"], left=False)
    if processes.is_alive(status["runner"]):
        return NodeState(status["state"], status["ranks"], left=True)
    again = node.read_json(paths.status)  # it may have ended well between the two looks
    if again is not None and again["state"] == "exited":
        return NodeState("exited", again["ranks"], left=False)
    return NodeState("lost", status["ranks"], left=bool(processes.session_members(status["ranks"])))


def _is_locked(paths: node.Paths) -> bool:
    """A runner that holds the lock and has not written its status yet."""
    lock = node.try_lock(paths.lock)
    if lock is None:
        return True
    os.close(lock)
    return False
