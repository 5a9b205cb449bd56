"""Backend that trains on worker agents. The store is its only memory; the workers act on what is stored there."""

import socket
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fermi.engines import runner_reports, telemetry_reports
from fermi.engines.agent import environments, state
from fermi.engines.agent.containers import ContainerAttempts, ContainerNode, enter_environment
from fermi.engines.agent.hosts import HostedRun
from fermi.engines.agent.render import build_orders, render
from fermi.engines.agent.store import AttemptReports, AttemptStore
from fermi.engines.base import Backend, RankExec, build_rank_not_running_error, build_rank_unreachable_error
from fermi.engines.carried_logs import AttemptFiles
from fermi.engines.inside import download, upload
from fermi.engines.inside.download import TransferLimits
from fermi.engines.inside.observation import merge_observations
from fermi.engines.inside.session import InsideError, InsideSession
from fermi.jobs.errors import BackendError
from fermi.jobs.ranks import parse_worker_name
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
    RunLocation,
    Sample,
)
from fermi.jobs.user_paths import find_missing_path_below

store: AttemptStore | None = None


def get_store() -> AttemptStore:
    """Return the store of this process. Raise BackendError where none was set: outside of the platform only rendering
    works."""
    if store is None:
        raise BackendError("WORKER_STORE_MISSING", permanent=True)
    return store


class AgentBackend(Backend):
    """Backend on worker agents: one worker per GPU, and containers of environments on their hosts."""

    alike = False
    own_disks = True

    def __init__(self, connection: Mapping[str, Any]) -> None:
        self.connection = connection
        self.data_dir = Path(connection.get("data_dir") or "var").resolve()
        self.mount = str((connection.get("data") or {}).get("mountPath") or "")
        self._limits = TransferLimits.from_connection(connection)
        self._containers = ContainerAttempts(self.data_dir, self._limits)

    def problems(self, job: JobSpec) -> list[Problem]:
        """Return what is wrong with the job; the hosts' own folders cannot be read from here."""
        found = []
        for index, node in enumerate(job.nodes):
            workers = node.engine.get("workers") or []
            if len(workers) != node.processes and not (node.inside and node.image):
                params = {"environment": node.name, "found": len(workers), "expected": node.processes}
                found.append(Problem(f"environmentIds.{index}", "WORKERS_DIFFER", params))
            elif job.starts_ranks and len(workers) > 1 and not (node.inside and node.image):
                found.append(Problem("entrypoint.processes", "WORKERS_START_RANKS", {"environment": node.name}))
        missing = Problem("resumeFrom", "RESUME_NOT_FOUND", {"path": job.resume_from})
        absent = find_missing_path_below(self.data_dir, job.resume_from, missing)
        return found + (absent or download.check_checkpoint_complete(self.data_dir, job.resume_from))

    def find_run_locations(self, job: JobSpec) -> Mapping[str, RunLocations]:
        """Return how ranks may run for environments that hosts keep. One that another project shares gives this one its
        workers, and neither its files nor its packages."""
        kept = environments.hosts.kept([node.id for node in job.nodes]) if environments.hosts else {}
        found = {}
        for node in job.nodes:
            if one := kept.get(node.id):
                held = RunLocation(True, "WAY_INSIDE_GPUS", {"gpus": node.gpu_count})
                found[node.id] = RunLocations(
                    held if node.has_cuda else RunLocation(True, "WAY_INSIDE_RUNS"),
                    inside=self._refusal(job, node, one),
                )
        return found

    def _refusal(self, job: JobSpec, node: Node, kept: HostedRun) -> RunLocation | None:
        """Return why ranks cannot run inside of an environment; None: they can. A container sees nothing of the
        platform's data directory except what is sent to it."""
        if kept.project != job.project:
            return RunLocation(False, "INSIDE_OTHER_PROJECT", {"environment": node.name})
        lacks = upload.find_upload_problem(job, self.data_dir, self._limits, self.mount, str(self.data_dir))
        if kept.image and lacks:
            return RunLocation(False, "INSIDE_WITHOUT_DATA", {"environment": node.name, **lacks})
        return None

    def find_missing_packages(
        self, node: Node, distributions: Sequence[str], job: JobSpec | None = None
    ) -> list[str] | None:
        """Return what the agent's own interpreter lacked when the agent joined; None where that is unknown: an older
        agent did not report it, the task names another interpreter, or what is missing may have been installed in an
        environment."""
        told = node.engine.get("lacks")
        lack = None if told is None else [name for name in distributions if name in told]
        return None if (job and job.python) or (lack and node.inside) else lack

    def render(self, job: JobSpec, plan: Plan) -> Rendered:
        return render(job, plan, self.connection)

    def submit(self, rendered: Rendered, secrets: Mapping[str, str] = NO_SECRETS) -> None:
        """Store the orders of an attempt and start its nodes inside of containers. Orders are stored, so secrets are
        not part of them: workers get those when they fetch an order, and what runs inside of containers by the stream
        to them."""
        handle = Handle.from_name(rendered.name)
        if of_workers := build_orders(rendered):
            get_store().put(handle.name, handle.task_id, handle.attempt, of_workers)
        with _wrap_disk_errors(self.data_dir):
            self._containers.start(rendered, secrets)

    def get_rank_exec(self, rendered: Rendered, handle: Handle, rank: int) -> RankExec:
        """Return how a command is started beside a rank: the worker's agent opens the stream, or the environment's
        daemon."""
        if one := self._containers.node(handle, rank):
            return RankExec(one.node_rank, partial(_open_rank_stream, handle, rank, one))
        attempt = get_store().attempts([handle.name]).get(handle.name)
        found = next((one for one in attempt.reports if one.rank == rank), None) if attempt else None
        if found is None or found.state != "running" or found.status == "lost":
            raise build_rank_not_running_error(handle, rank)
        return RankExec(found.node_rank, partial(_dial_worker, handle, rank, found.worker))

    def enter(self, node: Node) -> InsideSession:
        kept = environments.get_hosts().kept([node.id]).get(node.id)
        if kept is None:
            raise BackendError("INSIDE_NOT_HERE", permanent=True, environment=node.name)
        return enter_environment(kept.run)

    def observe(self, handles: Iterable[Handle]) -> dict[str, Observation]:
        handles = list(handles)
        names = [handle.name for handle in handles]
        known = get_store().attempts(names)
        return {handle.name: self._observe(handle, known.get(handle.name)) for handle in handles}

    def _observe(self, handle: Handle, attempt: AttemptReports | None) -> Observation:
        """Return the observation of workers and containers of an attempt, merged where it has both."""
        inner = self._containers.observe(handle)
        if inner is None:
            return state.build_observation(attempt)
        return merge_observations(inner, state.build_observation(attempt)) if attempt and attempt.reports else inner

    def cancel(self, handle: Handle, grace_seconds: float, still_seconds: float | None = None) -> None:
        with _wrap_disk_errors(self.data_dir):
            self._containers.request_end(handle, grace_seconds, still_seconds)
        get_store().stop(handle.name, handle.task_id, handle.attempt, grace_seconds)

    def logs(self, handle: Handle, rank: int, cursor: int, limit: int = 1 << 20) -> LogChunk:
        """Return a part of a rank's log. Workers send their logs here while they train; those of containers are
        fetched."""
        return AttemptFiles(self.data_dir, handle.task_id, handle.attempt).chunk(rank, cursor, limit)

    def pulses(self, handle: Handle) -> Mapping[int, RankProgress]:
        inner = AttemptFiles(self.data_dir, handle.task_id, handle.attempt).pulses()
        return {**runner_reports.parse_pulses(get_store().pulses(handle.name)), **inner}

    def telemetry(self, handle: Handle, after: float) -> Sequence[Sample]:
        """Return the samples of nodes inside of containers; those of workers are sent by their agents."""
        return telemetry_reports.read_samples(AttemptFiles(self.data_dir, handle.task_id, handle.attempt).folder, after)

    def left_out(self, handle: Handle) -> list[Problem]:
        return download.list_left_out(self.data_dir, handle)

    def port_host(self, job: JobSpec) -> str:
        """Return the head's host: several groups may have workers of one host."""
        return job.head.hostname

    def port_is_free(self, port: int) -> bool:
        """Return True: on another host only what its agent reported last is known (`ports_taken`). Rank 0's runner
        checks the port again before it starts, and the next attempt has another one."""
        return True

    def ports_taken(self, job: JobSpec) -> Mapping[int, str]:
        worker = next(iter(job.head.engine.get("workers") or ()), "")
        return store.ports(parse_worker_name(worker)[0]) if store and worker else {}

    def delete_attempt(self, handle: Handle) -> None:
        self._containers.delete_attempt(handle)
        get_store().delete_attempt(handle.name)

    def watch(self, stop: threading.Event, on_change: Callable[[str], None]) -> None:
        following = threading.Thread(
            target=self._containers.follow, args=(stop, on_change), name="containers", daemon=True
        )
        following.start()
        get_store().watch(stop, on_change)
        following.join()

    def orphans(self, live: Collection[str]) -> list[Handle]:
        known = {name: Handle(name, task, number, 0) for name, task, number in get_store().names()}
        known |= {name: Handle.from_name(name) for name in self._containers.names()}
        return [handle for name, handle in known.items() if name not in live]


@contextmanager
def _wrap_disk_errors(data_dir: Path) -> Iterator[None]:
    """Turn an OSError of the platform's own disk into BackendError."""
    try:
        yield
    except OSError as error:
        path = error.filename or str(data_dir)
        raise BackendError("DISK_UNUSABLE", path=path, why=error.strerror) from error


def _open_rank_stream(handle: Handle, rank: int, node: ContainerNode) -> socket.socket:
    try:
        return enter_environment(
            node.run, "fermi.inside.rank_exec", handle.name, str(node.node_rank), str(rank)
        ).release()
    except InsideError as error:
        raise build_rank_unreachable_error(handle, rank, str(error.params.get("why") or error.code)) from error


def _dial_worker(handle: Handle, rank: int, worker: str) -> socket.socket:
    try:
        return get_store().channel(handle.name, worker)
    except TimeoutError:
        raise build_rank_unreachable_error(handle, rank) from None
    except LookupError:
        raise build_rank_not_running_error(handle, rank) from None
