"""Backend that trains on Slurm. Slurm's jobs and the shared folder are its memory; any process of the platform can use
it."""

import getpass
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

from fermi.engines import logfiles, runner_reports, telemetry_reports
from fermi.engines.base import Backend, RankExec
from fermi.engines.environments import EnvironmentHandle
from fermi.engines.inside import managed_environment
from fermi.engines.inside.observation import merge_observations
from fermi.engines.inside.session import InsideSession
from fermi.engines.slurm import allocations, causes, components, inside, rank_exec, run_location, sandbox, state
from fermi.engines.slurm.access import create_driver, get_user
from fermi.engines.slurm.commands import SlurmCommands
from fermi.engines.slurm.driver import SlurmJob, SlurmMachine, SlurmSubmission
from fermi.engines.slurm.environments import SlurmEnvironmentBackend
from fermi.engines.slurm.pending_queue import PendingQueue
from fermi.engines.slurm.render import (
    build_files,
    build_setup_lines,
    build_variables,
    get_data_root,
    get_workspace,
    needs_login,
    render,
)
from fermi.engines.slurm.rundir import RunDir, RunDirContents, StepLocation, make_folder
from fermi.jobs.errors import BackendError
from fermi.jobs.run_location import RunLocations
from fermi.jobs.spec import (
    NO_SECRETS,
    Handle,
    JobSpec,
    LogChunk,
    Node,
    Observation,
    Phase,
    Plan,
    Problem,
    RankProgress,
    Rendered,
    Sample,
)
from fermi.jobs.user_paths import HOMES_FOLDER, TREES_FOLDER, find_missing_path_below

log = logging.getLogger(__name__)

OVERDUE_SECONDS = 5.0
"""A job whose runners are this late in ending their ranks after their grace is cancelled in Slurm."""
WATCH_SECONDS = 1.0
MAX_PARALLEL_STEPS = 8
"""Steps that are started at the same time."""
QUEUE_CACHE_SECONDS = 15.0
"""Largest age of a job's reported position in the queue."""


class SlurmBackend(Backend):
    """Backend on Slurm: one batch job per attempt, and steps of environments' allocations."""

    queues = True

    def __init__(self, connection: Mapping[str, Any]) -> None:
        self.connection = connection
        self.data_dir = Path(connection.get("data_dir") or "var").resolve()
        self.mount = get_data_root(connection)
        self.driver = create_driver(connection)
        self._commands = SlurmCommands(connection)
        self._line = -QUEUE_CACHE_SECONDS, state.EMPTY_QUEUE
        self._known_machines: tuple[float, Mapping[str, SlurmMachine]] = (-QUEUE_CACHE_SECONDS, {})
        self._missing: dict[tuple[str, int], float] = {}

    def problems(self, job: JobSpec) -> list[Problem]:
        found: list[Problem] = []
        taken: dict[str, str] = {}
        for index, node in enumerate(job.nodes):
            if node.inside:  # several allocations may share a machine
                continue
            machine = str(node.engine.get("node") or (node.host if allocations.is_environment(node) else ""))
            if machine and machine in taken:
                params = {"environment": node.name, "other": taken[machine], "machine": machine}
                found.append(Problem(f"environmentIds.{index}", "SLURM_NODE_TWICE", params))
            taken[machine] = node.name
        missing = Problem("resumeFrom", "RESUME_NOT_FOUND", {"path": job.resume_from})
        return [*found, *find_missing_path_below(self.data_dir, job.resume_from, missing), *self._out_of_reach(job)]

    def _out_of_reach(self, job: JobSpec) -> list[Problem]:
        """Return a problem where the ranks could not read their script."""
        script = job.entrypoint.script if job.entrypoint else ""
        if not script or job.brings(script):
            return []
        connection = {"data_dir": str(self.data_dir), **self.connection}
        workspace = get_workspace(connection)
        path = os.path.normpath(os.path.join(workspace, script))
        inner = [allocations.build_disk_path(node, self.mount) for node in job.nodes if node.inside]
        if len(inner) == len(job.nodes) and all(inner):  # in the first environment's workspace, or home
            path = os.path.normpath(os.path.join(inner[0], "workspace", script))
            if path.startswith((f"{inner[0]}/workspace/", f"{inner[0]}/home/")):
                return []
        if sandbox.can_read(connection, self.mount, workspace, path):
            return []
        return [Problem("entrypoint.script", "SLURM_PATH_NOT_GIVEN", {"path": path})]

    def find_run_locations(self, job: JobSpec) -> Mapping[str, RunLocations]:
        return run_location.find_run_locations(job, self.connection, self._enters, self._machines)

    def _machines(self) -> Mapping[str, SlurmMachine]:
        """Return the nodes of the cluster, by name, at most `QUEUE_CACHE_SECONDS` old; those known before where Slurm
        cannot be asked now."""
        at, found = self._known_machines
        if time.monotonic() - at > QUEUE_CACHE_SECONDS:
            with suppress(BackendError):
                found = {one.name: one for one in self.driver.machines()}
            self._known_machines = time.monotonic(), found
        return found

    def render(self, job: JobSpec, plan: Plan) -> Rendered:
        return render(job, plan, {"data_dir": str(self.data_dir), **self.connection})

    def submit(self, rendered: Rendered, secrets: Mapping[str, str] = NO_SECRETS) -> None:
        """Write the attempt's folder and submit its job. An attempt that was cancelled is never submitted: `cancel`
        first writes its request into the folder and looks for jobs then, this does so the other way round, and the job
        itself checks once more. A job that Slurm accepted while we were killed is found by its comment. Nodes inside of
        environments start last: all that they need exists then."""
        run, order = self._run(rendered.name), _get_order(rendered)
        if run.is_stopped() or _is_submitted(run, order):
            return
        places = run.places() or self._places(order)
        run.write(build_files(rendered))
        for name in (
            HOMES_FOLDER,
            TREES_FOLDER,
        ):  # jobs make the folders of projects and tasks in them, and report where they cannot
            with suppress(OSError):
                make_folder(self.data_dir / name)
        with run.alone():
            if run.is_stopped() or _is_submitted(run, order):
                return
            if secrets:
                run.write_secrets(secrets, 0o600 if self._user() == getpass.getuser() else 0o640)
            if places and not run.places():
                run.write_places(places, inside.find_address(places[0], self.driver) if 0 in places else "")
            if _has_job(order) and not run.submitted():
                known = [job.leader for job in self._jobs().get(rendered.name, ())]
                run.write_job_id(min(known) if known else self.driver.submit(self._submission(rendered)))
            self._begin_inside(run, rendered.name, order)
        if run.is_stopped():
            run.delete_secrets()
            self._cancel(self._jobs().get(rendered.name, ()))

    def _places(self, order: Mapping[str, Any]) -> dict[int, StepLocation]:
        """Return where nodes inside are to start. Raise BackendError where an environment does not run."""
        found = inside.Allocations(self.data_dir, self.mount, self.driver)
        return {int(rank): found.locate_node(known) for rank, known in order.get("inside", {}).items()}

    def _begin_inside(self, run: RunDir, name: str, order: Mapping[str, Any]) -> None:
        places, known = run.places(), order.get("inside", {})
        if not known:
            return

        def begin(rank: int) -> None:
            inside.start_node(self._commands, run, name, rank, places[rank], known[str(rank)])

        with ThreadPoolExecutor(MAX_PARALLEL_STEPS, thread_name_prefix="inside") as pool:
            for begun in [pool.submit(begin, int(rank)) for rank in known]:
                begun.result()

    def observe(self, handles: Iterable[Handle]) -> dict[str, Observation]:
        """Return the observations, with one listing for all; those that it lacks are queried again by id. A few are
        only queried by id: the listing has the jobs of all users, and may be long."""
        seen = {handle: self._run(handle.name).read_contents() for handle in handles}
        own = {handle: look for handle, look in seen.items() if state.has_own_job(look)}
        few = len(own) <= self.driver.max_single_queries and all(look.submitted for look in own.values())
        listed = {} if few or not own else self._jobs()
        inner = self._observe_inside({handle: look for handle, look in seen.items() if look.inside})
        found = {}
        for handle, look in seen.items():
            if handle in own:
                jobs = listed.get(handle.name) or self._by_id(handle.name, {look.begun, look.submitted})
                rest, part = state.remove_inside_nodes(look, handle)
                found[handle.name] = state.build_observation(rest, jobs, part, time.time(), self._line_of(jobs))
            if handle in inner:
                beside = found.get(handle.name)
                found[handle.name] = merge_observations(inner[handle], beside) if beside else inner[handle]
            if found[handle.name].phase in (Phase.FAILED, Phase.SUCCEEDED):
                self._run(handle.name).delete_secrets()
        return found

    def _observe_inside(self, looks: Mapping[Handle, RunDirContents]) -> dict[Handle, Observation]:
        """Return the observations of nodes inside. Slurm lists a step for as long as anything of it lives. First the
        steps are read, then the folders again, then the jobs: a runner writes how it ended before its step ends, and a
        job's state is known before its steps are signalled."""
        if not looks:
            return {}
        steps = components.group_steps(self._commands.steps())
        statuses = {handle: self._run(handle.name).read_contents().statuses for handle in looks}
        numbers = {place.job for look in looks.values() for place in look.places.values()}
        if len(numbers) <= self.driver.max_single_queries:
            jobs = {job.id: job for number in sorted(numbers) for job in self.driver.job(number)}
        else:
            jobs = {job.id: job for job in self._listed() if job.id in numbers}
        found, now = {}, time.time()
        for handle, look in looks.items():
            listed = steps.get(handle.name, {})
            gone = [rank for rank in look.started_inside if rank not in listed]
            missing = {rank: self._missing.setdefault((handle.name, rank), now) for rank in gone}
            look = replace(look, statuses={**look.statuses, **statuses[handle]})
            found[handle] = state.build_inside_observation(look, jobs, listed, missing, now)
            if found[handle].left is False:
                self._forget_missing(handle.name)
        return found

    def _forget_missing(self, name: str) -> None:
        for key in [key for key in list(self._missing) if key[0] == name]:
            self._missing.pop(key, None)

    def cancel(self, handle: Handle, grace_seconds: float, still_seconds: float | None = None) -> None:
        """Write the request to end into the folder, by which runners end their ranks; Slurm cancels jobs without a
        runner yet, and late ones."""
        run = self._run(handle.name)
        stop = run.stop(grace_seconds, still_seconds)
        run.delete_secrets()
        overdue, look = time.time() > stop["kill_at"] + OVERDUE_SECONDS, run.read_contents()
        if state.has_own_job(look):
            jobs = self._jobs().get(handle.name, ())
            self._cancel(job for job in jobs if overdue or job.state not in causes.RUNNING_STATES)
        if look.inside and overdue:
            self._cancel_steps(handle.name)

    def _cancel_steps(self, name: str) -> None:
        """Cancel the steps of nodes inside; the environments' allocations continue."""
        for numbers in components.group_steps(self._commands.steps()).get(name, {}).values():
            for number in numbers:
                self._commands.cancel_step(number)

    def logs(self, handle: Handle, rank: int, cursor: int, limit: int = 1 << 20) -> LogChunk:
        path = self.data_dir / "logs" / handle.task_id / str(handle.attempt) / f"{rank}.log"
        return logfiles.read_chunk(path, cursor, limit)

    def pulses(self, handle: Handle) -> Mapping[int, RankProgress]:
        return runner_reports.read_pulses(self._run(handle.name).path)

    def telemetry(self, handle: Handle, after: float) -> Sequence[Sample]:
        return telemetry_reports.read_samples(self._run(handle.name).path, after)

    def get_rank_exec(self, rendered: Rendered, handle: Handle, rank: int) -> RankExec:
        connection = {**self.connection, "data_dir": str(self.data_dir)}
        return rank_exec.find_rank_exec(connection, self._run(handle.name), rendered, handle, rank)

    def enter(self, node: Node) -> InsideSession:
        """Return a session; through the environment daemon where the platform made the environment: as confined as its
        other processes."""
        if not allocations.is_environment(node):
            raise BackendError("INSIDE_NOT_HERE", permanent=True, environment=node.name)
        if allocations.ALLOCATION_KEY in node.engine:
            made = inside.ManagedRun.find_run(self.data_dir, node.id)
            if made is None:
                raise BackendError("INSIDE_NOT_RUNNING", environment=node.name)
            hosting = SlurmEnvironmentBackend({**self.connection, "data_dir": str(self.data_dir)})
            return managed_environment.enter_environment(hosting.dial(EnvironmentHandle(node.id, made.number)))
        place = inside.Allocations(self.data_dir, self.mount, self.driver).locate_node(
            allocations.build_order(node, "", ())
        )
        shell = ["bash", *(["-l"] if needs_login(self.connection) else [])]
        python = allocations.get_interpreter(node) or str(self.connection.get("python") or "")
        return inside.enter_allocation(
            self._commands, place, shell, build_setup_lines(self.connection), python, node.name
        )

    def port_host(self, job: JobSpec) -> str:
        """Return the head's machine: Slurm may put jobs of several users side by side; where it chooses the node, any
        two."""
        head = job.head
        return str(head.engine.get("node") or (head.host if allocations.is_environment(head) else ""))

    def delete_attempt(self, handle: Handle) -> None:
        self._cancel(self._jobs().get(handle.name, ()))
        if self._enters():
            self._cancel_steps(handle.name)
        self._forget_missing(handle.name)
        self._run(handle.name).remove()

    def watch(self, stop: Event, on_change: Callable[[str], None]) -> None:
        """Call `on_change` with attempts that changed, until `stop`. Ranks write their logs where the platform reads
        them; changes in Slurm are found by asking every second. Steps are listed while there are allocations that
        something can train inside of."""
        known: dict[str, Any] = {}
        while not stop.wait(WATCH_SECONDS):
            try:
                listed = self._listed()
                seen: dict[str, Any] = {**_group_by_attempt(listed)}
                if self._enters() and any(_is_offered(job) for job in listed):
                    seen |= {f"{name}/": one for name, one in components.group_steps(self._commands.steps()).items()}
            except BackendError as error:
                log.warning("Slurm cannot be asked: %s", error)
                continue
            changed = {name.rstrip("/") for name in known.keys() | seen.keys() if known.get(name) != seen.get(name)}
            for name in sorted(changed):
                on_change(name)
            known = seen

    def orphans(self, live: Collection[str]) -> list[Handle]:
        """Return attempts with a job that is not over, or a step, and not among `live` (names), to be passed to
        `forget`."""
        listed = self._listed()
        left = {name for name, jobs in _group_by_attempt(listed).items() if not all(map(state.has_job_ended, jobs))}
        if self._enters() and any(_is_offered(job) for job in listed):
            left |= components.group_steps(self._commands.steps()).keys()
        return [Handle.from_name(name) for name in sorted(left - set(live))]

    def _enters(self) -> bool:
        """Return whether steps can be started and listed from here."""
        try:
            self._commands.program("srun")
        except BackendError:
            return False
        return True

    def _run(self, name: str) -> RunDir:
        return RunDir(self.data_dir / "runs" / name)

    def _jobs(self) -> dict[str, list[SlurmJob]]:
        """Return all jobs of ours, by the attempt's name in their comment: an id may be another job's by now."""
        return _group_by_attempt(self._listed())

    def _listed(self) -> list[SlurmJob]:
        listed = self.driver.jobs()
        self._line = time.monotonic(), PendingQueue(listed)
        return listed

    def _line_of(self, jobs: Sequence[SlurmJob]) -> PendingQueue:
        """Return the pending jobs of the cluster, where one of these waits, at most `QUEUE_CACHE_SECONDS` old: the
        listing has the jobs of all users, and may be long."""
        if not any(job.state in causes.PENDING_STATES for job in jobs):
            return state.EMPTY_QUEUE
        if time.monotonic() - self._line[0] > QUEUE_CACHE_SECONDS:
            self._jobs()
        return self._line[1]

    def _by_id(self, name: str, numbers: Iterable[int]) -> list[SlurmJob]:
        """Return the jobs under these numbers, if they are still the attempt's. A listing may leave out jobs that not
        all users may see."""
        jobs = [job for number in sorted(numbers) if number for job in self.driver.job(number)]
        return [job for job in jobs if components.parse_comment(job.comment) == name]

    def _cancel(self, jobs: Iterable[SlurmJob]) -> None:
        for leader in sorted({job.leader for job in jobs if not state.has_job_ended(job)}):
            self.driver.cancel(leader)

    def _user(self) -> str:
        return get_user(self.connection)

    def _submission(self, rendered: Rendered) -> SlurmSubmission:
        by_kind = {artifact.kind: artifact.content for artifact in rendered.artifacts}
        user = self._user()
        folder = f"{get_data_root({'data_dir': str(self.data_dir), **self.connection})}/runs/{rendered.name}"
        return SlurmSubmission(by_kind["script"], folder, by_kind["submission"]["components"], build_variables(user))


def _group_by_attempt(jobs: Iterable[SlurmJob]) -> dict[str, list[SlurmJob]]:
    found: defaultdict[str, list[SlurmJob]] = defaultdict(list)
    for job in jobs:
        if name := components.parse_comment(job.comment):
            found[name].append(job)
    return dict(found)


def _is_offered(job: SlurmJob) -> bool:
    """Return whether a job is an allocation that something can train inside of."""
    ours = job.comment.startswith(allocations.COMMENT_PREFIX) or allocations.parse_offer(job.comment) is not None
    return ours and job.state == "RUNNING"


def _get_order(rendered: Rendered) -> dict[str, Any]:
    found: dict[str, Any] = next(artifact.content for artifact in rendered.artifacts if artifact.kind == "order")
    return found


def _has_job(order: Mapping[str, Any]) -> bool:
    """Return whether any node is not inside of an environment."""
    return len(order.get("inside", {})) < order["nodes"]


def _is_submitted(run: RunDir, order: Mapping[str, Any]) -> bool:
    inner = [int(rank) for rank in order.get("inside", {})]
    return (not _has_job(order) or bool(run.submitted())) and all(map(run.has_begun, inner))
