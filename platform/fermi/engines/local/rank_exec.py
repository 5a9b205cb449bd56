"""Commands beside a rank on this machine: `fermi.envd.rank_exec` as a process of its own, in the ranks' sandbox.

The process that dials is its parent, and may die: it ends with its stream, which is closed then, and with it all that
it started.
"""

import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fermi.engines import subprocess_stream
from fermi.engines.local.launcher import build_training_env
from fermi.envd import protocol
from fermi.runner import status

DIAL_SECONDS = 8.0
MODULE_ARGS = ("-m", "fermi.envd.rank_exec")


def build_order(node: Mapping[str, Any], rank: int) -> dict[str, Any] | None:
    """Return the order that `fermi.envd.rank_exec` reads, from a node runner's spec; None: the rank is not that
    node's."""
    for process in node["ranks"]:
        if process["rank"] == rank:
            kept = {name: node[name] for name in ("name", "cwd", "confine", "python") if node.get(name)}
            return {"env": {**node["env"], **process["env"]}, **kept, **build_chosen_option(node)}
    return None


def build_chosen_option(node: Mapping[str, Any]) -> dict[str, str]:
    """Return the option for a node that prepares packages: the file with the interpreter that its ranks run with."""
    path = (node.get("code") or {}).get("chosen")
    return {"chosen": path} if path else {}


def is_rank_running(spec: Path, rank: int) -> bool:
    """Return whether the rank lives, of the node runner that has this spec."""
    if not spec.exists():
        return False
    seen = status.read_status(spec)
    states = {entry["rank"]: entry["state"] for entry in seen.ranks}
    return seen.state == "running" and states.get(rank) == "running"


def dial_rank(order: Mapping[str, Any]) -> socket.socket:
    """Return a stream to the program. Raise subprocess_stream.ProgramNotReadyError."""
    stream = subprocess_stream.open_ready_stream([sys.executable, *MODULE_ARGS], build_training_env(), DIAL_SECONDS)
    stream.sendall(protocol.encode_line(order))
    return stream
