"""Dev environments that the platform makes: what one is, what is seen of it, and what an engine must be able to do to
keep one.

    HostedSpec ──Hosting.render──▶ Rendered ──start──▶ keeper ──observe──▶ HostedSeen

An environment's **disk** belongs to its id and outlives its runs. A **run** is one life of its processes, named
`<environment>-<number>` (`run_name`); what bears a lower number is garbage. In each run a **keeper** (`fermi.envd`)
stands: it starts the service (JupyterLab, an editor, a script), tells what goes on, and opens what is asked for inside:
a port, a terminal, a command. Nothing of a run listens where others could reach it; whoever wants in dials the keeper
(`Hosting.dial`).
"""

import socket
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from fermi.jobs.spec import NO_SECRETS, Cause, LogChunk, Problem, Rendered

KINDS = ("jupyter", "vscode", "custom")
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Port:
    """A declared port inside of an environment, such as TensorBoard's 6006. `name` is what its door is called."""

    name: str
    port: int


@dataclass(frozen=True, slots=True)
class HostedSpec:
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
    ports: tuple[Port, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, str] = field(default_factory=dict)
    start_script: str = ""
    engine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def run_name(self) -> str:
        return run_name(self.id, self.run)


def run_name(environment: str, run: int) -> str:
    """What an engine knows a run by."""
    return f"{environment}-{run}"


@dataclass(frozen=True, slots=True)
class HostedHandle:
    environment: str
    run: int

    @property
    def name(self) -> str:
        return run_name(self.environment, self.run)


class HostedPhase(StrEnum):
    ABSENT = "absent"  # nothing of this run is there
    STARTING = "starting"  # something is, and its keeper or its service does not answer yet
    RUNNING = "running"  # its keeper answers, and its service is up (or is started at first use)
    ENDED = "ended"  # it was there and is over: `cause` says why
    UNKNOWN = "unknown"  # the engine cannot tell now; nothing happens because of it


@dataclass(frozen=True, slots=True)
class Kernel:
    """A notebook's process, as somebody who wants its GPU is told of it. `since`, `busy_at`: unix seconds."""

    id: str
    name: str  # the notebook's path, or what it runs
    busy: bool
    since: float | None = None
    busy_at: float | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """A process of the run that holds memory which a task would want: its GPUs', or much of its host's. `kernel`: the
    id of the kernel that it is, or belongs to; empty: none."""

    pid: int
    name: str  # as its command line begins
    since: float | None = None
    rss_bytes: int = 0
    gpu_bytes: int = 0
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class Activity:
    """What people do with it. `at`: unix seconds of the last sign (a kernel's work, a byte through a door, a command);
    None: none seen in this run. `connections`: doors, terminals and tunnels open now. `holders`: the largest first,
    the keeper and an idle service left out."""

    at: float | None = None
    connections: int = 0
    kernels: tuple[Kernel, ...] = ()
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True)
class HostedSeen:
    """`left`: whether processes of the run exist or may still begin (None = not known). `facts`: fields of the dev
    environment that only its host knows (`host`, `ip`, `versions`, `network`, `engine`, and the name of its `zone`).
    `doing`: what it is at while it starts, as a code and its params (`INSTALLING_PACKAGES`, …); `waiting`: why it has
    not begun."""

    phase: HostedPhase
    left: bool | None = None
    cause: Cause | None = None
    waiting: Cause | None = None
    doing: Cause | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    activity: Activity = field(default_factory=Activity)


class Hosting(ABC):
    """A backend's module `hosting` with `connect(connection) -> Hosting`. All methods raise
    `fermi.jobs.errors.BackendError` when the engine cannot be asked, and are idempotent."""

    on_demand: bool = False
    """Whether a run may count as running while nothing of it is there, and begins when somebody dials it."""

    hands_over: bool = False
    """Whether what is dialled is the keeper's own socket on this machine, so that it can hand over what it opens."""

    marks: Mapping[str, Any] = NOTHING
    """What the `engine` of its environments says from the beginning, so that its backend knows them."""

    def problems(self, spec: HostedSpec) -> list[Problem]:
        """What is wrong with it on this engine; fields as the API names them."""
        return []

    def resize_problems(self, spec: HostedSpec) -> list[Problem]:
        """What is wrong with giving the sizes of `spec` to an environment that exists. Asks the engine."""
        return []

    def zones(self) -> Collection[str] | None:
        """Names of the zones that its machines bear, to one of which an environment can be kept. None: it does not
        know them."""
        return None

    def gpus(self, host: str) -> int | None:
        """How many GPUs `host` ("": its one machine) has that are given out by their indices: the platform gives each
        to one environment. None: the engine gives out its own."""
        return None

    @abstractmethod
    def render(self, spec: HostedSpec) -> Rendered:
        """Pure. Shown to people, and what `start` sends; its name is the run's."""

    @abstractmethod
    def start(self, rendered: Rendered, secrets: Mapping[str, str] = NO_SECRETS) -> None:
        """Makes the disk where there is none, and begins the run; of a run that is there or was, nothing."""

    @abstractmethod
    def observe(self, handles: Iterable[HostedHandle]) -> Mapping[str, HostedSeen]:
        """One call for many, by run name."""

    @abstractmethod
    def stop(self, handle: HostedHandle, grace_seconds: float) -> None:
        """Asks the run's processes to end and does not wait; asked again until nothing is left. The disk stays. A run
        that never began can no longer begin."""

    @abstractmethod
    def delete(self, environment: str) -> bool:
        """Removes the disk and all that is kept of its runs, once nothing runs; whether all of it is gone."""

    @abstractmethod
    def logs(self, handle: HostedHandle, cursor: int, limit: int = 1 << 20) -> LogChunk:
        """Of the keeper and the service; see `Backend.logs`."""

    @abstractmethod
    def dial(self, handle: HostedHandle) -> socket.socket:
        """A connected stream to the run's keeper (see `fermi.envd.protocol`); blocks for at most a few seconds. Raises
        BackendError (ENVIRONMENT_AWAY) when nobody answers."""
