"""Dev environments that the platform makes: their spec, their status, and the interface of an engine that can run them.

    EnvironmentSpec ──EnvironmentBackend.render──▶ Rendered ──start──▶ envd ──observe──▶ EnvironmentStatus

An environment's **disk** belongs to its id and outlives its runs. A **run** is one life of its processes, named
`<environment>-<number>` (`runner.run_names`); runs with a lower number are garbage. In each run an **environment
daemon** (`fermi.envd`) supervises: it starts the service (JupyterLab, an editor, a script), reports its state, and
opens what is requested inside: a port, a terminal, a command. Nothing of a run listens where others could reach it;
callers connect to the daemon (`EnvironmentBackend.dial`).
"""

import socket
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from fermi.jobs.spec import NO_SECRETS, Cause, LogChunk, Problem, Rendered
from fermi.runner.run_names import build_run_name
from fermi.schema import serialization

MAX_CODE_LENGTH = 40
KINDS = ("jupyter", "vscode", "custom")
NO_MARKS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class EnvironmentPort:
    """Declared port inside of an environment, such as TensorBoard's 6006. `name`: part of its proxy address."""

    name: str
    port: int


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """All that one run is made from: the template's part as it was when the environment was made, its sizes now.

    image, packages    what runs it: a container's image where the engine has containers; requirements (as pip reads
                       them) on top of the engine's own Python
    gpus               indices on their host, where the engine gives out GPUs by index; () elsewhere or without any
    *_gb               GiB; disk_gb 0: as the engine does it
    zone               where it must be (a name that the engine's machines bear); "" = the engine chooses
    host               where it must be (a node's name), on engines of hosts; "" = the engine chooses
    secret_env         variable -> name of a secret of the project; a value is never part of this
    engine             what only its engine understands
    """

    id: str
    name: str
    project: str
    run: int
    kind: str = "jupyter"
    image: str = ""
    packages: tuple[str, ...] = ()
    gpu_type: str = ""
    gpu_count: int = 0
    gpus: tuple[int, ...] = ()
    emulated: bool = False
    cpu_cores: int = 1
    memory_gb: int = 1
    shared_memory_gb: int = 0
    disk_gb: int = 0
    zone: str = ""
    host: str = ""
    ports: tuple[EnvironmentPort, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, str] = field(default_factory=dict)
    start_script: str = ""
    engine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def run_name(self) -> str:
        """Name of the run."""
        return build_run_name(self.id, self.run)


@dataclass(frozen=True, slots=True)
class EnvironmentHandle:
    """Run of an environment, by the environment's id and the run's number."""

    environment: str
    run: int

    @property
    def name(self) -> str:
        """Name of the run."""
        return build_run_name(self.environment, self.run)


class EnvironmentPhase(StrEnum):
    """Phase of a run."""

    ABSENT = "absent"  # nothing of this run exists
    STARTING = "starting"  # something exists, and its daemon or its service does not answer yet
    RUNNING = "running"  # its daemon answers, and its service is up (or is started at first use)
    ENDED = "ended"  # it existed and is over: `cause` says why
    UNKNOWN = "unknown"  # the engine cannot tell now; nothing happens because of it


@dataclass(frozen=True, slots=True)
class Kernel:
    """Process of a notebook, as it is shown to users who want its GPU. `since`, `busy_at`: unix seconds."""

    id: str
    name: str  # the notebook's path, or what it runs
    busy: bool
    since: float | None = None
    busy_at: float | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Process of the run that holds memory which a task would need: its GPUs', or much of its host's. `kernel`: the id
    of the kernel that it is, or belongs to; empty: none."""

    pid: int
    name: str  # as its command line begins
    since: float | None = None
    rss_bytes: int = 0
    gpu_bytes: int = 0
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class Activity:
    """Use of an environment. `at`: unix seconds of the last activity (a kernel's work, a byte through the proxy, a
    command); None: none in this run. `connections`: proxied ports, terminals and tunnels open now. `holders`: the
    largest first, without the environment daemon and an idle service."""

    at: float | None = None
    connections: int = 0
    kernels: tuple[Kernel, ...] = ()
    holders: tuple[ProcessMemory, ...] = ()


@dataclass(frozen=True, slots=True)
class EnvironmentStatus:
    """Status of a run. `left`: whether processes of the run exist or may still start (None = not known). `facts`:
    fields of the dev environment that only its host knows (`host`, `ip`, `versions`, `network`, `engine`, and the name
    of its `zone`). `doing`: what it does while it starts, as a code and its params (`INSTALLING_PACKAGES`, …);
    `waiting`: why it has not started."""

    phase: EnvironmentPhase
    left: bool | None = None
    cause: Cause | None = None
    waiting: Cause | None = None
    doing: Cause | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    activity: Activity = field(default_factory=Activity)


class EnvironmentBackend(ABC):
    """Engine that can make dev environments: a backend's module `environments` with `connect(connection) ->
    EnvironmentBackend`. All methods raise `fermi.jobs.errors.BackendError` when the engine cannot be asked, and are
    idempotent."""

    on_demand: bool = False
    """Whether a run may count as running while none of its processes exist, and starts when it is dialled."""

    hands_over: bool = False
    """Whether `dial` returns the environment daemon's own socket on this machine, so that the daemon can pass
    descriptors of what it opens."""

    marks: Mapping[str, Any] = NO_MARKS
    """What the `engine` of its environments holds from the beginning, by which its backend knows them."""

    def problems(self, spec: EnvironmentSpec) -> list[Problem]:
        """Return what is wrong with the environment on this engine; fields as the API names them."""
        return []

    def resize_problems(self, spec: EnvironmentSpec) -> list[Problem]:
        """Return what is wrong with giving the sizes of `spec` to an environment that exists. Queries the engine."""
        return []

    def zones(self) -> Collection[str] | None:
        """Return the names of the zones of its machines, to one of which an environment can be bound; None: not
        known."""
        return None

    def gpus(self, host: str) -> int | None:
        """Return how many GPUs `host` ("": its one machine) has that are given out by their indices: the platform gives
        each to one environment. None: the engine gives out its own."""
        return None

    @abstractmethod
    def render(self, spec: EnvironmentSpec) -> Rendered:
        """Return what `start` sends; its name is the run's (pure). It is shown to users."""

    @abstractmethod
    def start(self, rendered: Rendered, secrets: Mapping[str, str] = NO_SECRETS) -> None:
        """Make the disk where there is none, and start the run; a run that exists or existed is not started again."""

    @abstractmethod
    def observe(self, handles: Iterable[EnvironmentHandle]) -> Mapping[str, EnvironmentStatus]:
        """Return the status of many runs by name, in one call."""

    @abstractmethod
    def stop(self, handle: EnvironmentHandle, grace_seconds: float) -> None:
        """Ask the run's processes to end without waiting; called again until nothing is left. The disk stays. A run
        that never started can no longer start."""

    @abstractmethod
    def delete(self, environment: str) -> bool:
        """Remove the disk and all that is kept of its runs, once nothing runs; return whether all of it is gone."""

    @abstractmethod
    def logs(self, handle: EnvironmentHandle, cursor: int, limit: int = 1 << 20) -> LogChunk:
        """Return a part of the log of environment daemon and service; see `Backend.logs`."""

    @abstractmethod
    def dial(self, handle: EnvironmentHandle) -> socket.socket:
        """Return a connected stream to the run's environment daemon (see `fermi.envd.protocol`), within a few seconds.
        Raise BackendError (ENVIRONMENT_AWAY) when it does not answer."""


def parse_cause(data: Any) -> Cause | None:
    """Return the cause that an environment reported; None for anything else: programs of the environment could have
    written it, too."""
    if isinstance(data, dict) and isinstance(code := data.get("code"), str) and code:
        params = data.get("params")
        return Cause(code[:MAX_CODE_LENGTH], params if isinstance(params, dict) else {})
    return None


def parse_activity(data: Any) -> Activity:
    """Return the activity that an environment reported; what has another shape counts as missing."""
    return serialization.load(Activity, data) if isinstance(data, dict) else Activity()
