"""Interface of an engine. A backend is a package with `connect(connection) -> Backend` and, where it needs them, the
modules `check` (how it is connected), `causes` (why attempts wait and fail: see `fermi.jobs.causes`), `discover` (dev
environments that its engine knows) and `environments` (dev environments that it can make). Its texts are in
`texts.toml`."""

import socket
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from threading import Event
from types import ModuleType
from typing import Any, Protocol, Self, runtime_checkable

from fermi.engines.certificates import CredentialExpiry
from fermi.engines.check_results import CheckResult
from fermi.engines.discovery import DiscoveredEnvironment
from fermi.engines.inside.session import InsideSession
from fermi.jobs import json_shape
from fermi.jobs.errors import BackendError
from fermi.jobs.run_location import RunLocations
from fermi.jobs.spec import (
    NO_SECRETS,
    Handle,
    JobSpec,
    LogChunk,
    Node,
    Observation,
    Plan,
    Problem,
    RankProgress,
    Rendered,
    Sample,
)


@dataclass(frozen=True, slots=True)
class RankExec:
    """Way to start commands beside a rank. `dial`: opens a stream to a program on node `node_rank` that takes what
    `fermi.envd.protocol` calls "exec": with the rank's variables, without the task's secrets, and in its working
    directory (`fermi.envd.rank_exec`). Takes seconds at most, and raises BackendError."""

    node_rank: int
    dial: Callable[[], socket.socket]


def build_rank_not_running_error(handle: Handle, rank: int) -> BackendError:
    """Return the error for a rank that does not run."""
    return BackendError("RANK_NOT_RUNNING", rank=rank, task=handle.task_id)


def build_rank_unreachable_error(handle: Handle, rank: int, why: str = "") -> BackendError:
    """Return the error for a rank that may be running and cannot be reached."""
    return BackendError("RANK_OUT_OF_REACH", rank=rank, task=handle.task_id, why=why or "no answer in time")


FORMER_NAMES = {
    "beside": "get_rank_exec",
    "forget": "delete_attempt",
    "here": "is_local",
    "lacks": "find_missing_packages",
    "ways": "find_run_locations",
}
"""Former names of members, kept for one release: a plug-in that defines one of them works, with a warning."""


class Backend(ABC):
    """Engine as the platform uses it. All methods raise `fermi.jobs.errors.BackendError` when the engine cannot be
    asked."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give members that a plug-in defines under a former name their present one, and warn."""
        super().__init_subclass__(**kwargs)
        for former in FORMER_NAMES.keys() & vars(cls).keys():
            present = FORMER_NAMES[former]
            text = f"{cls.__qualname__}.{former} is {present} now; the former name is removed in the next release"
            warnings.warn(text, FutureWarning, 3)
            if present not in vars(cls):
                setattr(cls, present, vars(cls)[former])

    is_local: bool = False
    """Whether all its nodes are this very machine."""
    alike: bool = True
    """Whether a distribution that one node lacks is missing on all."""
    queues: bool = False
    """Whether it has a queue of its own that decides who runs: what is submitted waits there."""
    own_disks: bool = False
    """Whether its nodes may keep what ranks save where neither the platform nor another node sees it."""
    mount: str = ""
    """Path at which ranks see the platform's data directory; empty: the platform's own path."""

    def problems(self, job: JobSpec) -> list[Problem]:
        """Return what is wrong with the job on this engine (a script that is not there, …); may query the engine."""
        return []

    def find_run_locations(self, job: JobSpec) -> Mapping[str, RunLocations]:
        """Return what is possible for each node of the job, by id: whether its ranks can run inside of its environment,
        and beside it. Nodes with one possibility alone are left out."""
        return {}

    def shares_data(self, node: Node) -> bool:
        """Return whether ranks inside of this environment write to the platform's data directory."""
        return True

    def entry_text(self, job: JobSpec, max_bytes: int) -> bytes:
        """Return the beginning of the job's own script, at most `max_bytes` bytes; empty where the job brings the
        script, or it cannot be read from here."""
        return b""

    def find_missing_packages(
        self, node: Node, distributions: Sequence[str], job: JobSpec | None = None
    ) -> list[str] | None:
        """Return which of the distributions the interpreter that runs the node's ranks lacks; None where it cannot be
        asked. `job`: may name another interpreter."""
        return None

    @abstractmethod
    def render(self, job: JobSpec, plan: Plan) -> Rendered:
        """Return what would be sent, without clock, randomness or engine (pure). It is shown to users before anything
        is sent."""

    @abstractmethod
    def submit(self, rendered: Rendered, secrets: Mapping[str, str] = NO_SECRETS) -> None:
        """Start the attempt. Idempotent: a name that exists stays as it is and nothing is started twice. `secrets`:
        variables that every rank gets beside what was rendered. They are stored nowhere except on their way to the
        ranks."""

    @abstractmethod
    def observe(self, handles: Iterable[Handle]) -> Mapping[str, Observation]:
        """Return the observations of many attempts by name, in one call. An attempt that cannot be judged is
        `Phase.UNKNOWN`."""

    @abstractmethod
    def cancel(self, handle: Handle, grace_seconds: float, still_seconds: float | None = None) -> None:
        """Ask for the end of an attempt without waiting; idempotent, and called again until nothing is left; an attempt
        that never started can no longer start. `still_seconds`: ranks that did nothing for so long need no grace, where
        the engine can tell."""

    @abstractmethod
    def logs(self, handle: Handle, rank: int, cursor: int, limit: int = 1 << 20) -> LogChunk:
        """Return up to `limit` bytes of a rank's log from byte offset `cursor` (negative: so many before the present
        end); a log that does not exist is empty."""

    def pulses(self, handle: Handle) -> Mapping[int, RankProgress]:
        """Return the progress of an attempt's ranks, by rank, as their runners reported it last; ranks without a report
        are left out. Must be cheap: it may be called every second by a viewer of one task."""
        return {}

    def telemetry(self, handle: Handle, after: float) -> Sequence[Sample]:
        """Return what the attempt's nodes and ranks used since `after` (unix seconds), as their runners measured it, in
        order of time. What is older than a few minutes may be gone."""
        return ()

    def left_out(self, handle: Handle) -> Sequence[Problem]:
        """Return what the ranks of an attempt have written where the platform does not see it and what is not
        downloaded, each with the reason. Must be cheap."""
        return ()

    def port_host(self, job: JobSpec) -> str | None:
        """Return the machine whose ports the job's rendezvous shares with other attempts; None where the head has an
        address of its own; "" where any two attempts of this engine may meet on one machine."""
        return ""

    def port_is_free(self, port: int) -> bool:
        """Return whether a new rendezvous could listen on `port` at the head node, as far as can be known from here."""
        return True

    def ports_taken(self, job: JobSpec) -> Mapping[int, str]:
        """Return the ports on which other programs listen at the head node, with the program, as far as it is known
        without trying each port."""
        return {}

    def port_holder(self, job: JobSpec, port: int) -> str:
        """Return the program that listens on a port that is not free, as `pid 4711 (python train.py)`; empty: not
        known."""
        return self.ports_taken(job).get(port, "")

    def stand_by(self, preload: Sequence[str]) -> None:
        """Prepare to start a job that imports `preload` soon, where that makes the start faster."""
        return

    def get_rank_exec(self, rendered: Rendered, handle: Handle, rank: int) -> RankExec:
        """Return how commands are started beside a rank of a running attempt; `rendered` is what was sent. Raise
        `build_rank_not_running_error` where the engine knows that the rank does not run."""
        raise BackendError("BESIDE_RANK_NOT_HERE", permanent=True)

    def enter(self, node: Node) -> InsideSession:
        """Return a session with `fermi.inside` in the node's environment, which the caller closes. Takes seconds at
        most. Raise BackendError."""
        raise BackendError("INSIDE_NOT_HERE", permanent=True, environment=node.name)

    def delete_attempt(self, handle: Handle) -> None:
        """Remove what the engine keeps of an attempt that has ended (not its logs)."""
        return


@runtime_checkable
class RemoteBackend(Protocol):
    """Further methods of a backend whose engine runs elsewhere, reports changes by itself, and may know attempts that
    the platform has forgotten."""

    def watch(self, stop: Event, on_change: Callable[[str], None]) -> None:
        """Have logs downloaded, and call `on_change` with the name of each attempt that changed, until `stop`."""

    def orphans(self, live: Collection[str]) -> Sequence[Handle]:
        """Return attempts that the engine has and that are not among `live` (names), to be passed to
        `delete_attempt`."""


def _find_nothing(connection: Mapping[str, Any]) -> list[Any]:
    return []


def _get_no_standby(image: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class BackendCheck:
    """Functions of a backend's module `check`, with defaults for what it leaves out. Each takes a connection.

    `CONNECTION`: JSON Schema of a connection, as an operator may store it: references to secrets, never secrets.
    `contradictions`: parts of a connection that are well formed and may not go together. `findings`: ask the engine
    everything that training on it needs; return results instead of raising. `notices`: what the operator has to know at
    all times, without asking the engine. `standby`: where the training stack stands by, imported, for ranks inside of
    an environment with this image (""): in the `environment`, in a process of the `engine`'s, or nowhere ("").
    `endings`: expiry of the certificates and tokens that the engine is reached with; raise BackendError where they
    cannot be read.
    """

    CONNECTION: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    contradictions: Callable[[Mapping[str, Any]], list[Problem]] = _find_nothing
    findings: Callable[[Mapping[str, Any]], list[CheckResult]] = _find_nothing
    notices: Callable[[Mapping[str, Any]], list[CheckResult]] = _find_nothing
    endings: Callable[[Mapping[str, Any]], list[CredentialExpiry]] = _find_nothing
    standby: Callable[[str], str] = _get_no_standby

    def __post_init__(self) -> None:
        json_shape.refuse_unknown_keywords(self.CONNECTION)

    @classmethod
    def from_module(cls, module: ModuleType | None) -> Self:
        """Return the functions of a module, with defaults for what it lacks."""
        return cls(**{one.name: getattr(module, one.name) for one in fields(cls) if hasattr(module, one.name)})


class DiscoveryModule(Protocol):
    """Interface of a backend's module `discover`."""

    def follow(self, connection: Mapping[str, Any], stop: Event) -> Iterator[Sequence[DiscoveredEnvironment]]:
        """Yield all dev environments of the cluster: now, and again whenever one changed, until `stop` is set. Raise
        BackendError when the engine cannot be asked."""
