"""Prepares a node before its ranks start, in a pod, as a Slurm task, in an environment and in the foreground: waits for
the other nodes, resolves late values, and chooses the network interface. Standard library only, Python 3.9 or later."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fermi.runner import barrier, interfaces
from fermi.runner.late_values import Late, decode


@dataclass(frozen=True)
class Meeting:
    """Where the nodes of a job meet before any of them starts a rank; `nodes` 1: there is nothing to wait for. `head`:
    the host of rank 0, as this node reaches it. `patience`: seconds to wait. `goes_on`: a node starts without the nodes
    that it has not met in that time, as those of a pre-flight test do, which reports itself who cannot reach whom."""

    name: str
    node_rank: int
    nodes: int
    head: str
    port: int
    patience: float = barrier.PATIENCE_SECONDS
    goes_on: bool = False


def prepare(
    spec: dict[str, Any],
    meeting: Meeting,
    say: barrier.Say,
    stopped: barrier.Stopped,
    also: Mapping[Late, str] | None = None,
) -> None:
    """Complete a node's spec; stop waiting for other nodes once `is_stopped` returns True. `known_values`: late values
    that the caller knows. Raises RendezvousError, and OSError if the head cannot listen."""
    try:
        head = _head(meeting, say, stopped)
    except barrier.GaveUp as error:
        if not meeting.goes_on:
            raise
        say(f"not all nodes have met: {error.cause}: {error.detail}")
        head = meeting.head
    known = {Late.HEAD_HOST: head, Late.PYTHON: sys.executable, **(also or {})}
    spec["command"] = [decode(word, known) for word in spec["command"]]
    spec["env"] = {**interfaces.for_ranks(head, is_here=meeting.node_rank == 0), **_bound(spec["env"], known)}
    for rank in spec["ranks"]:
        rank["env"] = _bound(rank["env"], known)


def _head(at: Meeting, say: barrier.Say, stopped: barrier.Stopped) -> str:
    """Wait for the other nodes, and return the address that answered for the head."""
    if at.nodes > 1 and at.node_rank != 0:
        return barrier.as_member(at.name, at.node_rank, at.head, at.port, say, stopped, at.patience)
    if at.nodes > 1:
        barrier.as_head(at.name, at.nodes, at.port, say, stopped, at.patience)
    return at.head


def _bound(env: dict[str, Any], known: dict[Late, str]) -> dict[str, str]:
    return {name: decode(value, known) for name, value in env.items()}
