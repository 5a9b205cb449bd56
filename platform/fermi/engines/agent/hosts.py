"""Store of dev environments on worker hosts, between the platform and the agents, beside `store`.

    EnvironmentBackend ──put, stop, remove──▶ HostStore ──by heartbeat──▶ agent ──▶ the host's own EnvironmentBackend
    EnvironmentBackend ◀────────runs───────── HostStore ◀──by heartbeat── agent ◀──observe─┘
    EnvironmentBackend ◀─a connected socket────── channel ◀──WebSocket── agent ◀──dial─┘

Orders travel with the heartbeats of one worker of the host. An environment that has GPUs holds the workers of these
GPUs: they leave the environment of their node, and come back to it when the run is over.
"""

import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fermi.engines.agent.store import WorkerStatus
from fermi.engines.environments import EnvironmentHandle, EnvironmentSpec, EnvironmentStatus


@dataclass(frozen=True, slots=True)
class HostStatus:
    """Status of a host of a project. `free`: its workers that are in no group and held by no environment, with the GPU
    index of each (None: a CPU process). `containers`: whether its agent has a container engine to run images with."""

    status: WorkerStatus
    free: Mapping[str, int | None]
    containers: bool = False


@dataclass(frozen=True, slots=True)
class EnvironmentRunReport:
    """What is known of a run on a host. `status`: of the worker that carries it, `lost` too when another machine drives
    that worker now. `environment_status`: what its agent reported last, None: nothing yet; `holds`: facts of the
    workers that it holds, as training needs them."""

    host: str
    status: WorkerStatus
    stopped: bool
    environment_status: EnvironmentStatus | None = None
    holds: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class HostedRun:
    """Run of an environment that is wanted on a host. `run`: the run's name; `image`: the container's image, empty: it
    is no container."""

    run: str
    project: str
    image: str = ""


class HostStore(Protocol):
    """Store of runs on hosts. All methods are idempotent, may be called from any process, and raise `BackendError`."""

    def hosts(self, project: str) -> Mapping[str, HostStatus]:
        """Return the hosts of a project by node."""

    def put(self, spec: EnvironmentSpec, body: Mapping[str, Any]) -> None:
        """Order a run; one that is known, or older than one that is, changes nothing. It goes to the host where the
        environment's disk is, else to `spec.host`, else to one that has room. Raise BackendError: HOST_UNKNOWN,
        HOST_AWAY, HOST_WORKERS_BUSY (nothing is ordered)."""

    def runs(self, names: Collection[str]) -> Mapping[str, EnvironmentRunReport]:
        """Return those of the runs that are known, by name, with a constant number of queries."""

    def kept(self, environments: Collection[str]) -> Mapping[str, HostedRun]:
        """Return the runs of those environments that hosts keep now, by the environment's id, with one query."""

    def stop(self, handle: EnvironmentHandle, grace_seconds: float) -> None:
        """Stop a run; one that was never put cannot be put any more."""

    def remove(self, environment: str) -> bool:
        """Have the host remove all of an environment; return whether it reported that nothing is left. A host that was
        removed from the platform took it along."""

    def channel(self, name: str) -> socket.socket:
        """Return a stream to the run's environment daemon, which its agent opens from there. Raise
        BackendError(ENVIRONMENT_AWAY)."""
