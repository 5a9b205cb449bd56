"""Beside a rank on this machine: `fermi.envd.rank_exec` as a process of its own, in the ranks' confinement.

Whoever dials is its parent, and may die: it ends with its stream, which is gone then, and with it all that it began."""

import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fermi.engines import subprocess_stream
from fermi.engines.local.launcher import training_env
from fermi.envd import protocol
from fermi.runner import status

DIAL_SECONDS = 8.0
WORDS = ("-m", "fermi.envd.rank_exec")


def order(node: Mapping[str, Any], rank: int) -> dict[str, Any] | None:
    """Of a node runner's spec, as `fermi.envd.rank_exec` reads it; None: the rank is not that node's."""
    for process in node["ranks"]:
        if process["rank"] == rank:
            kept = {name: node[name] for name in ("name", "cwd", "confine", "python") if node.get(name)}
            return {"env": {**node["env"], **process["env"]}, **kept, **chosen(node)}
    return None


def chosen(node: Mapping[str, Any]) -> dict[str, str]:
    """Of a node that prepares packages, where it keeps which interpreter its ranks run with."""
    path = (node.get("code") or {}).get("chosen")
    return {"chosen": path} if path else {}


def runs(spec: Path, rank: int) -> bool:
    """Whether the rank lives, of the node runner that has this spec."""
    if not spec.exists():
        return False
    seen = status.look(spec)
    states = {entry["rank"]: entry["state"] for entry in seen.ranks}
    return seen.state == "running" and states.get(rank) == "running"


def dial(given: Mapping[str, Any]) -> socket.socket:
    """Raises joined.Silent."""
    stream = subprocess_stream.begin([sys.executable, *WORDS], training_env(), DIAL_SECONDS)
    stream.sendall(protocol.line(given))
    return stream
