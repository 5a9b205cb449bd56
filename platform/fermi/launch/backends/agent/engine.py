"""The backend's verbs on worker agents. The store is the only memory, and its workers do the rest."""

import socket
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fermi.launch.backends import logfiles, reported
from fermi.launch.backends.agent import hosting, state
from fermi.launch.backends.agent.render import orders, render
from fermi.launch.backends.agent.store import Store
from fermi.launch.backends.base import Backend, Beside, not_running, out_of_reach
from fermi.launch.errors import BackendError
from fermi.launch.ranks import split
from fermi.launch.spec import (
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
    Way,
)
from fermi.launch.userpaths import absent_below
from fermi.launch.ways import Ways

store: Store | None = None


def known_store() -> Store:
    """Raises BackendError where nobody has handed one over: outside of the platform only rendering works."""
    if store is None:
        raise BackendError("WORKER_STORE_MISSING", permanent=True)
    return store


class AgentBackend(Backend):
    alike = False

    def __init__(self, connection: Mapping[str, Any]) -> None:
        self.connection = connection
        self.data_dir = Path(connection.get("data_dir") or "var").resolve()
        self.mount = str((connection.get("data") or {}).get("mountPath") or "")

    def problems(self, job: JobSpec) -> list[Problem]:
        """The hosts' own folders cannot be looked into from here."""
        found = []
        for index, node in enumerate(job.nodes):
            workers = node.engine.get("workers") or []
            if len(workers) != node.processes:
                params = {"environment": node.name, "found": len(workers), "expected": node.processes}
                found.append(Problem(f"environmentIds.{index}", "WORKERS_DIFFER", params))
        missing = Problem("resumeFrom", "RESUME_NOT_FOUND", {"path": job.resume_from})
        return found + absent_below(self.data_dir, job.resume_from, missing)

    def ways(self, job: JobSpec) -> Mapping[str, Ways]:
        """Of environments that hosts keep as processes. One that another project shares gives this one its workers, and
        neither its files nor its packages."""
        kept = hosting.hosts.kept([node.id for node in job.nodes]) if hosting.hosts else {}
        found = {}
        for node in job.nodes:
            if (one := kept.get(node.id)) and not one.image:
                held = Way(True, "WAY_INSIDE_GPUS", {"gpus": node.gpu_count})
                other = Way(False, "INSIDE_OTHER_PROJECT", {"environment": node.name})
                foreign = None if one.project == job.project else other
                found[node.id] = Ways(held if node.has_cuda else Way(True, "WAY_INSIDE_RUNS"), inside=foreign)
        return found

    def lacks(self, job: JobSpec, node: Node, distributions: Sequence[str]) -> list[str] | None:
        """As its agent told of its own interpreter when it joined; an older one told nothing. Of one that the task
        names nobody knows, and what is missing may have been installed in an environment."""
        told = node.engine.get("lacks")
        lack = None if told is None else [name for name in distributions if name in told]
        return None if job.python or (lack and node.inside) else lack

    def render(self, job: JobSpec, plan: Plan) -> Rendered:
        return render(job, plan, self.connection)

    def submit(self, rendered: Rendered, secrets: Mapping[str, str] = NO_SECRETS) -> None:
        """Orders are stored, so secrets are not part of them: workers get those when they fetch an order."""
        handle = Handle.of(rendered.name)
        known_store().put(handle.name, handle.task_id, handle.attempt, orders(rendered))

    def beside(self, rendered: Rendered, handle: Handle, rank: int) -> Beside:
        """The worker's agent brings the stream."""
        attempt = known_store().attempts([handle.name]).get(handle.name)
        found = next((one for one in attempt.reports if one.rank == rank), None) if attempt else None
        if found is None or found.state != "running" or found.status == "lost":
            raise not_running(handle, rank)
        return Beside(found.node_rank, partial(_dial, handle, rank, found.worker))

    def observe(self, handles: Iterable[Handle]) -> dict[str, Observation]:
        names = [handle.name for handle in handles]
        known = known_store().attempts(names)
        return {name: state.observe(known.get(name)) for name in names}

    def cancel(self, handle: Handle, grace_seconds: float, still_seconds: float | None = None) -> None:
        known_store().stop(handle.name, handle.task_id, handle.attempt, grace_seconds)

    def logs(self, handle: Handle, rank: int, cursor: int, limit: int = 1 << 20) -> LogChunk:
        """Workers ship them here while they train."""
        path = self.data_dir / "logs" / handle.task_id / str(handle.attempt) / f"{rank}.log"
        return logfiles.chunk(path, cursor, limit)

    def pulses(self, handle: Handle) -> Mapping[int, PulseSeen]:
        return reported.pulses(known_store().pulses(handle.name))

    def port_host(self, job: JobSpec) -> str:
        """Several groups may have workers of one host."""
        return job.head.hostname

    def port_is_free(self, port: int) -> bool:
        """On another host: what its agent said last is in `ports_taken`. Rank 0's runner looks once more before it
        begins, and the next attempt has another."""
        return True

    def ports_taken(self, job: JobSpec) -> Mapping[int, str]:
        worker = next(iter(job.head.engine.get("workers") or ()), "")
        return store.ports(split(worker)[0]) if store and worker else {}

    def forget(self, handle: Handle) -> None:
        known_store().forget(handle.name)

    def watch(self, stop: threading.Event, on_change: Callable[[str], None]) -> None:
        known_store().watch(stop, on_change)

    def orphans(self, live: Collection[str]) -> list[Handle]:
        return [Handle(name, task, number, 0) for name, task, number in known_store().names() if name not in live]


def _dial(handle: Handle, rank: int, worker: str) -> socket.socket:
    try:
        return known_store().channel(handle.name, worker)
    except TimeoutError:
        raise out_of_reach(handle, rank) from None
    except LookupError:
        raise not_running(handle, rank) from None
