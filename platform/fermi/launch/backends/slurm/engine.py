"""The backend's verbs on Slurm. Its jobs and the shared folder are the memory; any process of the platform can ask."""

import getpass
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

from fermi.launch.backends import logfiles, measured, reported
from fermi.launch.backends.base import Backend, Beside
from fermi.launch.backends.slurm import beside, causes, components, confinement, state
from fermi.launch.backends.slurm.commands import Commands
from fermi.launch.backends.slurm.driver import Driver, Job, Submission
from fermi.launch.backends.slurm.line import Line
from fermi.launch.backends.slurm.render import files, folder_of, render, workspace_of
from fermi.launch.backends.slurm.rest import Rest
from fermi.launch.backends.slurm.rundir import RunDir, make
from fermi.launch.errors import BackendError
from fermi.launch.spec import (
    NO_SECRETS,
    Handle,
    JobSpec,
    LogChunk,
    Observation,
    Phase,
    Plan,
    Problem,
    PulseSeen,
    Rendered,
    Sample,
)
from fermi.launch.userpaths import HOMES, TREES, absent_below

log = logging.getLogger(__name__)

OVERDUE_SECONDS = 5.0
"""A job whose runners are this late in ending their ranks after their grace is cancelled in Slurm."""
WATCH_SECONDS = 1.0
LINE_SECONDS = 15.0
"""So old may be what is told of a job's place among all that wait."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def driver(connection: Mapping[str, Any]) -> Driver:
    return Rest(connection) if connection.get("url") else Commands(connection)


def user_of(connection: Mapping[str, Any]) -> str:
    """Whose jobs they are."""
    return str(connection.get("user") or getpass.getuser())


class SlurmBackend(Backend):
    queues = True

    def __init__(self, connection: Mapping[str, Any]) -> None:
        self.connection = connection
        self.data_dir = Path(connection.get("data_dir") or "var").resolve()
        self.mount = folder_of(connection)
        self.driver = driver(connection)
        self._line = -LINE_SECONDS, state.NOBODY

    def problems(self, job: JobSpec) -> list[Problem]:
        found: list[Problem] = []
        taken: dict[str, str] = {}
        for index, node in enumerate(job.nodes):
            machine = str(node.engine.get("node") or "")
            if machine and machine in taken:
                params = {"environment": node.name, "other": taken[machine], "machine": machine}
                found.append(Problem(f"environmentIds.{index}", "SLURM_NODE_TWICE", params))
            taken[machine] = node.name
            if "allocation" in node.engine:
                found.append(
                    Problem(f"environmentIds.{index}", "SLURM_ENVIRONMENT_NOT_TRAINED", {"environment": node.name})
                )
        missing = Problem("resumeFrom", "RESUME_NOT_FOUND", {"path": job.resume_from})
        return [*found, *absent_below(self.data_dir, job.resume_from, missing), *self._out_of_reach(job)]

    def _out_of_reach(self, job: JobSpec) -> list[Problem]:
        """A script that its ranks could not read."""
        script = job.entrypoint.script if job.entrypoint else ""
        if not script or job.brings(script):
            return []
        connection = {"data_dir": str(self.data_dir), **self.connection}
        workspace = workspace_of(connection)
        path = os.path.normpath(os.path.join(workspace, script))
        if confinement.can_read(connection, self.mount, workspace, path):
            return []
        return [Problem("entrypoint.script", "SLURM_PATH_NOT_GIVEN", {"path": path})]

    def render(self, job: JobSpec, plan: Plan) -> Rendered:
        return render(job, plan, {"data_dir": str(self.data_dir), **self.connection})

    def submit(self, rendered: Rendered, secrets: Mapping[str, str] = NO_SECRETS) -> None:
        """Who was cancelled is never submitted: `cancel` leaves its word in the folder first and looks for jobs then,
        this does so the other way round, and the job itself looks once more. A job that was taken by Slurm while we
        were killed is found by its comment."""
        run = self._run(rendered.name)
        if run.is_stopped() or run.submitted():
            return
        run.write(files(rendered))
        for name in (HOMES, TREES):  # in them, jobs make those of projects and of tasks; without, they say so
            with suppress(OSError):
                make(self.data_dir / name)
        with run.alone():
            if run.is_stopped() or run.submitted():
                return
            if secrets:
                run.keep_secrets(secrets, 0o600 if self._user() == getpass.getuser() else 0o640)
            known = [job.leader for job in self._jobs().get(rendered.name, ())]
            run.remember(min(known) if known else self.driver.submit(self._submission(rendered)))
        if run.is_stopped():
            run.drop_secrets()
            self._cancel(self._jobs().get(rendered.name, ()))

    def observe(self, handles: Iterable[Handle]) -> dict[str, Observation]:
        """One listing for all; of those that it lacks, Slurm is asked again by id. A few are only asked for by id: the
        listing is everybody's, and may be long."""
        seen = {handle: self._run(handle.name).look() for handle in handles}
        few = len(seen) <= self.driver.few and all(look.submitted for look in seen.values())
        listed = {} if few or not seen else self._jobs()
        found = {}
        for handle, look in seen.items():
            jobs = listed.get(handle.name) or self._by_id(handle.name, {look.begun, look.submitted})
            line = self._line_of(jobs)
            found[handle.name] = state.observe(look, jobs, handle, time.time(), line)
            if found[handle.name].phase in (Phase.FAILED, Phase.SUCCEEDED):
                self._run(handle.name).drop_secrets()
        return found

    def cancel(self, handle: Handle, grace_seconds: float, still_seconds: float | None = None) -> None:
        """Runners end their ranks when they see the word in the folder; Slurm ends what has none yet, or is late."""
        run = self._run(handle.name)
        stop = run.stop(grace_seconds, still_seconds)
        run.drop_secrets()
        overdue = time.time() > stop["kill_at"] + OVERDUE_SECONDS
        self._cancel(job for job in self._jobs().get(handle.name, ()) if overdue or job.state not in causes.LIVES)

    def logs(self, handle: Handle, rank: int, cursor: int, limit: int = 1 << 20) -> LogChunk:
        path = self.data_dir / "logs" / handle.task_id / str(handle.attempt) / f"{rank}.log"
        return logfiles.chunk(path, cursor, limit)

    def pulses(self, handle: Handle) -> Mapping[int, PulseSeen]:
        return reported.pulses_in(self._run(handle.name).path)

    def telemetry(self, handle: Handle, after: float) -> Sequence[Sample]:
        return measured.samples_in(self._run(handle.name).path, after)

    def beside(self, rendered: Rendered, handle: Handle, rank: int) -> Beside:
        connection = {**self.connection, "data_dir": str(self.data_dir)}
        return beside.beside(connection, self._run(handle.name), rendered, handle, rank)

    def port_host(self, job: JobSpec) -> str:
        """Slurm may put jobs of several users side by side; where the choice of the node is left to it, any two."""
        return str(job.head.engine.get("node") or "")

    def forget(self, handle: Handle) -> None:
        self._cancel(self._jobs().get(handle.name, ()))
        self._run(handle.name).remove()

    def watch(self, stop: Event, on_change: Callable[[str], None]) -> None:
        """Ranks write their logs where we read them; what changes in Slurm is seen by asking every second."""
        known: dict[str, list[Job]] = {}
        while not stop.wait(WATCH_SECONDS):
            try:
                jobs = self._jobs()
            except BackendError as error:
                log.warning("Slurm cannot be asked: %s", error)
                continue
            for name in sorted(name for name in known.keys() | jobs.keys() if known.get(name) != jobs.get(name)):
                on_change(name)
            known = jobs

    def orphans(self, live: Collection[str]) -> list[Handle]:
        """Attempts with a job that is not over, and not among `live` (names): to be passed to `forget`."""
        left = [name for name, jobs in self._jobs().items() if name not in live and not all(map(state.is_over, jobs))]
        return [Handle.of(name) for name in sorted(left)]

    def _run(self, name: str) -> RunDir:
        return RunDir(self.data_dir / "runs" / name)

    def _jobs(self) -> dict[str, list[Job]]:
        """All of ours, by the attempt's name in their comment: an id may be somebody else's by now."""
        found: defaultdict[str, list[Job]] = defaultdict(list)
        listed = self.driver.jobs()
        self._line = time.monotonic(), Line(listed)
        for job in listed:
            if name := components.attempt(job.comment):
                found[name].append(job)
        return dict(found)

    def _line_of(self, jobs: Sequence[Job]) -> Line:
        """Who waits, where one of these does; as it was a moment ago. The listing is everybody's, and may be long."""
        if not any(job.state in causes.WAITS for job in jobs):
            return state.NOBODY
        if time.monotonic() - self._line[0] > LINE_SECONDS:
            self._jobs()
        return self._line[1]

    def _by_id(self, name: str, numbers: Iterable[int]) -> list[Job]:
        """Under these numbers, if they are still the attempt's. A listing may leave out what not everybody may see."""
        jobs = [job for number in sorted(numbers) if number for job in self.driver.job(number)]
        return [job for job in jobs if components.attempt(job.comment) == name]

    def _cancel(self, jobs: Iterable[Job]) -> None:
        for leader in sorted({job.leader for job in jobs if not state.is_over(job)}):
            self.driver.cancel(leader)

    def _user(self) -> str:
        return user_of(self.connection)

    def _submission(self, rendered: Rendered) -> Submission:
        by_kind = {artifact.kind: artifact.content for artifact in rendered.artifacts}
        user = self._user()
        folder = f"{folder_of({'data_dir': str(self.data_dir), **self.connection})}/runs/{rendered.name}"
        environment = {"PATH": PATH, "USER": user, "LOGNAME": user, "LANG": "C.UTF-8"}
        return Submission(by_kind["script"], folder, by_kind["submission"]["components"], environment)


__all__ = ["SlurmBackend", "driver", "user_of"]
