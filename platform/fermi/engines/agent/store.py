"""Protocol of what is stored between the backend and the worker agents: which attempt each worker is to run, and what
the workers report of it. It is kept by the application that also answers their heartbeats
(`apps.workers.engine.store`), and set with `fermi.engines.agent.set_store(store)`.

    backend ──put, stop, forget──▶ AttemptStore ──desired state, by heartbeat──▶ worker
    backend ◀──────attempts────── AttemptStore ◀──────────reports───────────────┘

An attempt's record goes through

    (unknown) ──put──▶ ordered ──stop──▶ stopped ──forget──▶ (unknown)
        └────────────────stop────────────▶┘          a stopped name is never ordered again

What a worker is to do is the newest attempt that was `put` for it, whatever state that is in; each change of it (put,
stop, a shorter grace, forget) raises the worker's `generation`, in the same transaction. All methods are idempotent,
may be called from any process at any time, and raise `fermi.jobs.errors.BackendError` when they cannot do it.
"""

import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Literal, Protocol

WorkerStatus = Literal["online", "suspect", "lost", "never"]
"""State of a worker. `lost`: no heartbeat for so long that it counts as gone. A server that could not receive
heartbeats itself makes no worker lost: the time counts from the later of the worker's last heartbeat and the moment
since when the server has been listening without a break; while it does not listen no worker becomes lost."""

ProcessState = Literal["ordered", "starting", "running", "exited"]
"""State of a worker's process. `ordered`: the worker has not reported on this attempt yet."""


@dataclass(frozen=True, slots=True)
class RankOrder:
    """One rank for one worker. `body`: what `GET /workers/{id}/order` answers, except for `generation`, which the
    server adds: `{"name", "digest", "spec", "files"}`. `node`: the name of its environment, for people."""

    worker: str
    rank: int
    node_rank: int
    node: str
    digest: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RankReport:
    """What is known of one order. `status` is the worker's own, and `lost` too when the worker was deleted or is driven
    for another user now. The rest is what the worker last reported of a process of *this* attempt's name, kept when it
    goes on to another: `exit_code` negative = killed by that signal; None with `exited` = it never started, or its
    runner died. `left`: whether the process, anything that it started, or a byte of its log that the server has not got
    still exists; None = the worker has not reported it. `stop_requested`: the process was asked to end before it did.
    `heard_at`: when the worker's last heartbeat came, in unix seconds by the server's clock. `cause`: what its runner
    wrote down as such; `doing`: what it does before the rank starts; `error`, `stalled`, `kill`, and all of `course`:
    as in `RankSeen`."""

    worker: str
    rank: int
    node_rank: int
    node: str
    status: WorkerStatus = "online"
    state: ProcessState = "ordered"
    pid: int | None = None
    exit_code: int | None = None
    ended_at: float | None = None  # unix seconds, by the worker's clock
    left: bool | None = None
    stop_requested: bool = False
    heard_at: float | None = None
    still_since: float | None = None  # unix seconds, by the worker's clock
    cause: Mapping[str, Any] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    stalled: Mapping[str, Any] | None = None
    kill: Mapping[str, Any] | None = None
    course: Mapping[str, Any] = field(default_factory=dict)
    doing: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class AttemptReports:
    """Reports of an attempt. `stopped`: `stop` was called. `reports`: one per order, in rank order; none where it was
    stopped before it was put."""

    stopped: bool
    reports: Sequence[RankReport] = ()


class AttemptStore(Protocol):
    """Store of attempts, orders and reports; see the module."""

    def put(self, name: str, task_id: str, attempt: int, orders: Sequence[RankOrder]) -> None:
        """Order an attempt, all workers in one transaction. A name that is known (ordered or stopped) changes nothing.
        A worker that has another order gets this one instead: the lease on its environment shows that the other is
        over. Raise BackendError(WORKER_UNKNOWN, permanent, `workers`: ids, comma-separated) when there is no such
        worker, and then order nothing."""

    def attempts(self, names: Collection[str]) -> Mapping[str, AttemptReports]:
        """Return those of `names` that are known, with a constant number of queries."""

    def pulses(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Return what the runners of the attempt reported last of their ranks' progress, as they wrote it."""

    def stop(self, name: str, task_id: str, attempt: int, grace_seconds: float) -> None:
        """Ask the workers of the attempt to end it within `grace_seconds` from now; of several calls the one that ends
        soonest counts. A name that was never put cannot be put any more."""

    def delete_attempt(self, name: str) -> None:
        """Remove the attempt: `attempts` and `names` know it no more, and its workers, if they still have this order,
        have none. A worker may still send the rest of that rank's log afterwards (it was disconnected), so who had
        which rank is kept for the log endpoint for as long as the platform keeps the task."""

    def names(self) -> Sequence[tuple[str, str, int]]:
        """Return all known attempts as (name, task, number)."""

    def ports(self, node: str) -> Mapping[int, str]:
        """Return the ports on which other programs than training listen at the host of these workers' node, as last
        reported, with the program (`pid 4711 (nc)`; empty: not known)."""

    def workers(self) -> Mapping[str, WorkerStatus]:
        """Return the status of every worker, for `fermi clusters check`."""

    def channel(self, name: str, worker: str) -> socket.socket:
        """Return a stream of the worker's host to `fermi.envd.rank_exec`, beside the rank that the worker has of this
        attempt. Raise TimeoutError where none came within seconds, LookupError where the worker has no such order."""

    def watch(self, stop: Event, on_change: Callable[[str], None]) -> None:
        """Call `on_change` with the name of each attempt of which a report or a worker's status changed, until `stop`.
        May only wait for `stop` where the changes reach the platform in another way."""
