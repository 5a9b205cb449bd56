"""Prepares a node before its ranks start, in a pod, as a Slurm task, in an environment and in the foreground: waits for
the other nodes, resolves late values, and chooses the network interface. Standard library only, Python 3.9 or later."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fermi.runner import barrier, interfaces
from fermi.runner.late_values import Late, decode_value


@dataclass(frozen=True)
class Rendezvous:
    """Where the nodes of a job meet before any of them starts a rank; `nodes` 1: there is nothing to wait for. `head`:
    the host of rank 0, as this node reaches it. `patience`: seconds to wait. `goes_on`: a node starts without the nodes
    that it has not met in that time, as those of a pre-flight test do, which reports itself who cannot reach whom."""

    name: str
    node_rank: int
    nodes: int
    head: str
    port: int
    patience: float = barrier.DEFAULT_TIMEOUT_SECONDS
    goes_on: bool = False


def prepare_node(
    spec: dict[str, Any],
    meeting: Rendezvous,
    log: barrier.LogLine,
    is_stopped: barrier.IsStopped,
    known_values: Mapping[Late, str] | None = None,
) -> None:
    """Complete a node's spec; stop waiting for other nodes once `is_stopped` returns True. `known_values`: late values
    that the caller knows. Raises RendezvousError, and OSError if the head cannot listen."""
    try:
        head = _wait_for_nodes(meeting, log, is_stopped)
    except barrier.RendezvousError as error:
        if not meeting.goes_on:
            raise
        log(f"not all nodes have met: {error.cause}: {error.detail}")
        head = meeting.head
    known = {Late.HEAD_HOST: head, Late.PYTHON: sys.executable, **(known_values or {})}
    spec["command"] = [decode_value(word, known) for word in spec["command"]]
    spec["env"] = {
        **interfaces.build_interface_env(head, is_head=meeting.node_rank == 0),
        **_decode_env(spec["env"], known),
    }
    for rank in spec["ranks"]:
        rank["env"] = _decode_env(rank["env"], known)


def _wait_for_nodes(rendezvous: Rendezvous, log: barrier.LogLine, is_stopped: barrier.IsStopped) -> str:
    """Wait for the other nodes, and return the address that answered for the head."""
    if rendezvous.nodes > 1 and rendezvous.node_rank != 0:
        return barrier.wait_as_member(
            rendezvous.name,
            rendezvous.node_rank,
            rendezvous.head,
            rendezvous.port,
            log,
            is_stopped,
            rendezvous.patience,
        )
    if rendezvous.nodes > 1:
        barrier.wait_as_head(rendezvous.name, rendezvous.nodes, rendezvous.port, log, is_stopped, rendezvous.patience)
    return rendezvous.head


def _decode_env(env: dict[str, Any], values: dict[Late, str]) -> dict[str, str]:
    return {name: decode_value(value, values) for name, value in env.items()}
