"""What making dev environments on worker hosts needs remembered between the platform and the agents, beside `store`.

    Hosting ──put, stop, remove──▶ Hosts ──by heartbeat──▶ agent ──▶ the host's own `Hosting`
    Hosting ◀────────runs───────── Hosts ◀──by heartbeat── agent ◀──observe─┘
    Hosting ◀─────a connected socket────── channel ◀──WebSocket── agent ◀──dial─┘

Orders travel with the heartbeats of one worker of the host. An environment that has GPUs holds the workers of these
GPUs: they leave the environment of their node, and come back to it when the run is over.
"""

import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fermi.engines.agent.store import Status
from fermi.engines.environments import HostedHandle, HostedSeen, HostedSpec


@dataclass(frozen=True, slots=True)
class HostSeen:
    """A host of a project. `free`: its workers that are in no group and held by no environment; `gpus`: the index of
    each, None = a CPU process. `containers`: whether its agent has a container engine to run images with."""

    status: Status
    free: Mapping[str, int | None]
    containers: bool = False


@dataclass(frozen=True, slots=True)
class RunReport:
    """`status`: of the worker that carries it, `lost` too when another machine drives that worker now. `seen`: what its
    agent said last, None = nothing yet; `holds`: facts of the workers that it holds, as training needs them."""

    host: str
    status: Status
    stopped: bool
    seen: HostedSeen | None = None
    holds: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """An environment of which a run is wanted on a host. `run`: the run's name; `image`: what container it is, if
    any."""

    run: str
    project: str
    image: str = ""


class Hosts(Protocol):
    """All methods are idempotent, may be called from any process, and raise `BackendError`."""

    def hosts(self, project: str) -> Mapping[str, HostSeen]:
        """By node."""

    def put(self, spec: HostedSpec, body: Mapping[str, Any]) -> None:
        """Orders a run; nothing happens for one that is known, or older than one that is. It goes to the host where the
        environment's disk is, else to `spec.host`, else to where room is. Raises BackendError: HOST_UNKNOWN,
        HOST_AWAY, HOST_WORKERS_BUSY (nothing is ordered)."""

    def runs(self, names: Collection[str]) -> Mapping[str, RunReport]:
        """Those that are known; a constant number of queries."""

    def kept(self, environments: Collection[str]) -> Mapping[str, Kept]:
        """Those of them that hosts keep now, by id; one query."""

    def stop(self, handle: HostedHandle, grace_seconds: float) -> None:
        """One that was never put becomes one that cannot be put any more."""

    def remove(self, environment: str) -> bool:
        """Has the host remove all of it; whether it said that nothing is left. A host that was removed from the
        platform took it along."""

    def channel(self, name: str) -> socket.socket:
        """A stream to the run's keeper, which its agent opens from there. Raises BackendError(ENVIRONMENT_AWAY)."""
