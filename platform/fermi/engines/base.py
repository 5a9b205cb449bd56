"""What an engine must be able to do. A backend is a package with `connect(connection) -> Backend` and, where it needs
them, the modules `check` (how it is connected), `causes` (why attempts wait and fail: see `fermi.jobs.causes`) and
`discover` (dev environments that its engine knows). Its texts are in `texts.toml`."""

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from threading import Event
from types import ModuleType
from typing import Any, Protocol, Self, runtime_checkable

from fermi.engines.certificates import Ending
from fermi.engines.check_results import Finding
from fermi.engines.discovery import Found
from fermi.engines.inside.session import Session
from fermi.jobs.errors import BackendError
from fermi.jobs.run_location import Ways
from fermi.jobs.spec import (
    NO_SECRETS,
    Handle,
    JobSpec,
    LogChunk,
    Node,
    Observation,
    Plan,
    Problem,
    PulseSeen,
    Rendered,
    Sample,
)


@dataclass(frozen=True, slots=True)
class Beside:
    """Where a command runs that somebody starts beside a rank. `dial`: a stream to something on node `node_rank` that
    takes what `fermi.envd.protocol` calls "exec": with the rank's variables, without the task's secrets, and in its
    working directory (`fermi.envd.rank_exec`). Takes seconds at most, and raises BackendError."""

    node_rank: int
    dial: Callable[[], socket.socket]


def not_running(handle: Handle, rank: int) -> BackendError:
    return BackendError("RANK_NOT_RUNNING", rank=rank, task=handle.task_id)


def out_of_reach(handle: Handle, rank: int, why: str = "") -> BackendError:
    """It may be running."""
    return BackendError("RANK_OUT_OF_REACH", rank=rank, task=handle.task_id, why=why or "no answer in time")


class Backend(ABC):
    """All methods raise `fermi.jobs.errors.BackendError` when the engine cannot be asked."""

    here: bool = False
    """Whether all its nodes are this very machine."""
    alike: bool = True
    """Whether what one node lacks, all lack."""
    queues: bool = False
    """Whether it has a queue of its own that decides who runs: what is submitted waits there."""
    mount: str = ""
    """Where ranks see the platform's data directory; empty: at the platform's own path."""

    def problems(self, job: JobSpec) -> list[Problem]:
        """What is wrong with the job on this engine (a script that is not there, …); may look at the engine."""
        return []

    def ways(self, job: JobSpec) -> Mapping[str, Ways]:
        """What is possible for each node of the job, by id: whether its ranks can run inside of its environment, and
        beside it. Nothing of a node for which there is one way alone."""
        return {}

    def shares_data(self, node: Node) -> bool:
        """Returns whether ranks inside of this environment write to the platform's data directory."""
        return True

    def entry_text(self, job: JobSpec, most: int) -> bytes:
        """Returns the beginning of the job's own script, at most `most` bytes; empty where the job brings it, or it
        cannot be read from here."""
        return b""

    def lacks(self, node: Node, distributions: Sequence[str], job: JobSpec | None = None) -> list[str] | None:
        """Which of them the interpreter that runs the node's ranks has not got; None where it cannot be asked. `job`:
        may name another interpreter."""
        return None

    @abstractmethod
    def render(self, job: JobSpec, plan: Plan) -> Rendered:
        """Pure: no clock, no randomness, no engine. Shown to users before anything is sent."""

    @abstractmethod
    def submit(self, rendered: Rendered, secrets: Mapping[str, str] = NO_SECRETS) -> None:
        """Idempotent: a name that is already there stays as it is and nothing is started twice. `secrets`: variables
        that every rank gets beside what was rendered. They are kept nowhere but on their way to the ranks."""

    @abstractmethod
    def observe(self, handles: Iterable[Handle]) -> Mapping[str, Observation]:
        """One call for many attempts, by name. An attempt that cannot be judged is `Phase.UNKNOWN`."""

    @abstractmethod
    def cancel(self, handle: Handle, grace_seconds: float, still_seconds: float | None = None) -> None:
        """Asks for the end and does not wait; idempotent, and asked again until nothing is left; an attempt that
        never began can no longer begin.
        `still_seconds`: ranks that do nothing for so long need no grace, where the engine can tell."""

    @abstractmethod
    def logs(self, handle: Handle, rank: int, cursor: int, limit: int = 1 << 20) -> LogChunk:
        """Up to `limit` bytes from byte offset `cursor` (negative: so many before the present end); an absent log is
        empty."""

    def pulses(self, handle: Handle) -> Mapping[int, PulseSeen]:
        """How the ranks of an attempt get on, by rank, as their runners saw it last; without those that have no pulse.
        Cheap: it may be asked every second by who looks at one task."""
        return {}

    def telemetry(self, handle: Handle, after: float) -> Sequence[Sample]:
        """What its nodes and ranks used, as their runners measured it since `after` (unix seconds), in order of time.
        What is older than a few minutes may be gone."""
        return ()

    def left_out(self, handle: Handle) -> Sequence[Problem]:
        """What the ranks of an attempt have written where the platform does not see it, and what is not brought here:
        each with why. Cheap."""
        return ()

    def port_host(self, job: JobSpec) -> str | None:
        """The machine whose ports the job's rendezvous shares with other attempts; None where the head has an address
        of its own; "" where any two attempts of this engine may meet on one machine."""
        return ""

    def port_is_free(self, port: int) -> bool:
        """Whether a new rendezvous could listen on `port` at the head node, as far as can be known from here."""
        return True

    def ports_taken(self, job: JobSpec) -> Mapping[int, str]:
        """What others listen on at the head node, as far as it is known without a look at each port, with who does."""
        return {}

    def port_holder(self, job: JobSpec, port: int) -> str:
        """Who listens on a port that is not free, as `pid 4711 (python train.py)`; empty: not known."""
        return self.ports_taken(job).get(port, "")

    def stand_by(self, preload: Sequence[str]) -> None:
        """Get ready to start a job that imports `preload` soon, where being ready beforehand helps."""
        return

    def beside(self, rendered: Rendered, handle: Handle, rank: int) -> Beside:
        """Beside a rank of an attempt that runs; `rendered` is what was sent. Raises `not_running` where the engine
        knows that by itself."""
        raise BackendError("BESIDE_RANK_NOT_HERE", permanent=True)

    def enter(self, node: Node) -> Session:
        """Returns a session with `fermi.inside` in the node's environment, which the caller closes. Takes seconds at
        most, and raises BackendError."""
        raise BackendError("INSIDE_NOT_HERE", permanent=True, environment=node.name)

    def forget(self, handle: Handle) -> None:
        """Removes what the engine keeps of an attempt that has ended (not its logs)."""
        return


@runtime_checkable
class Remote(Protocol):
    """What a backend also has whose engine lives elsewhere, tells of changes by itself, and may know what we forgot."""

    def watch(self, stop: Event, on_change: Callable[[str], None]) -> None:
        """Until `stop`: has logs brought here, and calls `on_change` with the name of each attempt that changed."""

    def orphans(self, live: Collection[str]) -> Sequence[Handle]:
        """Attempts that the engine has and that are not among `live` (names): to be passed to `forget`."""


def _nothing(connection: Mapping[str, Any]) -> list[Any]:
    return []


def _nowhere(image: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Check:
    """A backend's module `check`, with defaults for what it leaves out. Each function takes a connection.

    `CONNECTION`: JSON Schema of a connection, as an operator may store it: references to secrets, never secrets.
    `contradictions`: what is wrong where its parts are well formed and may not go together.
    `findings`: asks the engine everything that training on it needs; finds instead of raising.
    `notices`: what whoever runs the platform has to know at all times, without asking the engine.
    `standby`: where the training stack stands by, imported, for ranks inside of an environment with this image (""): in
    the `environment`, in a process of the `engine`'s, or nowhere ("").
    `endings`: of the certificates and tokens that the engine is reached with; raises BackendError where they cannot be
    read."""

    CONNECTION: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    contradictions: Callable[[Mapping[str, Any]], list[Problem]] = _nothing
    findings: Callable[[Mapping[str, Any]], list[Finding]] = _nothing
    notices: Callable[[Mapping[str, Any]], list[Finding]] = _nothing
    endings: Callable[[Mapping[str, Any]], list[Ending]] = _nothing
    standby: Callable[[str], str] = _nowhere

    @classmethod
    def of(cls, module: ModuleType | None) -> Self:
        return cls(**{one.name: getattr(module, one.name) for one in fields(cls) if hasattr(module, one.name)})


class Discovery(Protocol):
    """A backend's module `discover`."""

    def follow(self, connection: Mapping[str, Any], stop: Event) -> Iterator[Sequence[Found]]:
        """All dev environments of the cluster: now, and again whenever one changed, until `stop` is set. Raises
        BackendError when the engine cannot be asked."""
