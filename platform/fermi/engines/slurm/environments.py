"""Dev environments on Slurm: an allocation held by a job, whose batch script is the environment daemon
(`environment_job`).

    <data>/slurm-environments/<id>/      on the folder that the platform and all nodes share
        workspace/  home/                the disk
        runs/<number>/                   job.sh  keeper.json  modules/  submitted.json  begun  stop.json  slurm.log;
                                         keeper.{status.json,log,sock,token,lock}  service/

Slurm knows a run by the comment `fermi-environment:<id>-<number>`. Connections are steps of the job's own, `srun
--jobid=… --overlap`, which join their input and output to the daemon's socket on the node; nothing listens on the
network for it. `--overlap` lets steps share what the job has, the batch step's too; `--unbuffered` passes bytes on as
they come and not by lines (https://slurm.schedmd.com/srun.html). Slurm lets only a job's own user into it, so the
platform has to be that user.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fermi.engines import bundle, logfiles, runner_reports, subprocess_stream
from fermi.engines.connections import cache_by_connection
from fermi.engines.environments import EnvironmentBackend, EnvironmentHandle, EnvironmentSpec, EnvironmentStatus
from fermi.engines.local.environment_runs import EnvironmentDisk
from fermi.engines.slurm import environment_job
from fermi.engines.slurm.access import create_driver, get_user
from fermi.engines.slurm.commands import SlurmCommands
from fermi.engines.slurm.driver import SlurmJob, SlurmSubmission
from fermi.engines.slurm.pending_queue import PendingQueue
from fermi.engines.slurm.render import build_variables, get_data_root
from fermi.engines.slurm.rundir import RunDir
from fermi.engines.slurm.state import has_job_ended
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import NO_SECRETS, LogChunk, Problem, Rendered
from fermi.runner.run_names import parse_run_name

DIAL_SECONDS = 10.0


@cache_by_connection
def connect(connection: dict[str, Any]) -> SlurmEnvironmentBackend:
    """Return the environment backend of a connection; the same one for equal connections."""
    return SlurmEnvironmentBackend(connection)


class SlurmEnvironmentBackend(EnvironmentBackend):
    """Environment backend on Slurm: one job per run."""

    marks = MappingProxyType({environment_job.ALLOCATION_KEY: 0})

    def __init__(self, connection: Mapping[str, Any]) -> None:
        self.data_dir = Path(connection.get("data_dir") or "var").resolve()
        self.connection = {**connection, "data_dir": str(self.data_dir)}
        self.driver = create_driver(connection)
        self.commands = SlurmCommands(connection)

    def problems(self, spec: EnvironmentSpec) -> list[Problem]:
        found = []
        if spec.image:
            found.append(Problem("image", "SLURM_ENVIRONMENT_IMAGE", {"image": spec.image}))
        user, own = get_user(self.connection), getpass.getuser()
        if user != own:
            found.append(Problem("clusterId", "SLURM_ENVIRONMENT_USER", {"user": user, "expected": own}))
        try:
            self.commands.program("srun")
        except BackendError as missing:
            found.append(Problem("clusterId", missing.code, missing.params))
        return found

    def render(self, spec: EnvironmentSpec) -> Rendered:
        return environment_job.render(spec, self.connection)

    def start(self, rendered: Rendered, secrets: Mapping[str, str] = NO_SECRETS) -> None:
        """Write the run's folder and submit its job, as an attempt (`SlurmBackend.submit`): once, and never after it
        was stopped."""
        content = {artifact.kind: artifact.content for artifact in rendered.artifacts}
        environment, number = parse_run_name(rendered.name)
        disk, run = self._disk(environment), self._run(EnvironmentHandle(environment, int(number)))
        if run.is_stopped() or run.submitted():
            return
        try:
            disk.make(content["keeper"]["project"])
            run.path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise BackendError("DISK_UNUSABLE", path=error.filename or str(run.path), why=error.strerror) from error
        modules = bundle.collect_modules(bundle.SLURM_ENVD_MODULES, ())
        placed = {f"{environment_job.MODULES_FOLDER}/{path}": text for path, text in modules.items()}
        run.write({**placed, "job.sh": content["script"], "keeper.json": content["keeper"]})
        with run.alone():
            if run.is_stopped() or run.submitted():
                return
            known = [job.id for job in self._jobs()[0].get(rendered.name, ())]
            if secrets and not known:
                run.write_secrets(secrets, 0o600)
            run.write_job_id(min(known) if known else self.driver.submit(self._submission(content)))
        if run.is_stopped():
            run.delete_secrets()
            self._cancel(rendered.name)

    def _submission(self, content: Mapping[str, Any]) -> SlurmSubmission:
        user = get_user(self.connection)
        asked = content["submission"]
        return SlurmSubmission(content["script"], asked["folder"], asked["components"], build_variables(user))

    def observe(self, handles: Iterable[EnvironmentHandle]) -> dict[str, EnvironmentStatus]:
        """Return the status of runs. The folders are read before Slurm: what is missing in both is then really
        missing."""
        looks = {handle.name: _read_run_files(self._run(handle)) for handle in handles}
        listed, line = self._jobs() if looks else ({}, PendingQueue())
        found = {}
        for name, look in looks.items():
            jobs = listed.get(name) or self._by_id(name, {look.submitted, look.begun})
            found[name] = environment_job.build_status(look, jobs, time.time(), line)
        return found

    def stop(self, handle: EnvironmentHandle, grace_seconds: float) -> None:
        """Write the request to end into the folder first: a run that waits in the queue never starts. Slurm then
        signals the environment daemon, which may see that file late on a network file system."""
        run = self._run(handle)
        try:
            run.path.parent.parent.mkdir(parents=True, exist_ok=True)
            run.stop(grace_seconds)
        except OSError as error:
            raise BackendError("DISK_UNUSABLE", path=error.filename or str(run.path), why=error.strerror) from error
        run.delete_secrets()
        self._cancel(handle.name)

    def delete(self, environment: str) -> bool:
        listed, _ = self._jobs()
        alive = [name for name, jobs in listed.items() if not all(map(has_job_ended, jobs))]
        if any(parse_run_name(name)[0] == environment for name in alive):
            return False
        return self._disk(environment).remove()

    def logs(self, handle: EnvironmentHandle, cursor: int, limit: int = 1 << 20) -> LogChunk:
        return logfiles.read_chunk(self._run(handle).path / "keeper.log", cursor, limit)

    def dial(self, handle: EnvironmentHandle) -> socket.socket:
        run = self._run(handle)
        job, told = _read_job_id(run), runner_reports.read_report(run.path / "keeper.status.json") or {}
        if not job or run.is_stopped() or told.get("state") == "exited":
            raise BackendError("ENVIRONMENT_AWAY", environment=handle.environment)
        try:
            return subprocess_stream.open_ready_stream(self._srun(handle, job), self.commands.variables(), DIAL_SECONDS)
        except subprocess_stream.ProgramNotReadyError:
            raise BackendError("ENVIRONMENT_AWAY", environment=handle.environment) from None

    def _srun(self, handle: EnvironmentHandle, job: int) -> list[str]:
        folder = f"{get_data_root(self.connection)}/{environment_job.ENVIRONMENTS_FOLDER}"
        run = f"{folder}/{handle.environment}/runs/{handle.run}"
        spec = runner_reports.read_report(self._run(handle).path / "keeper.json") or {}
        python = str(spec.get("python") or "python3")
        modules = f"PYTHONPATH={run}/{environment_job.MODULES_FOLDER}:{run}"  # the folder of runs of earlier releases
        return [*self.commands.step(job), "env", modules, python, "-m", "fermi.envd.bridge", f"{run}/keeper.json"]

    def _disk(self, environment: str) -> EnvironmentDisk:
        if "/" in environment or environment in ("", ".", ".."):
            raise ValueError(environment)
        return EnvironmentDisk(self.data_dir / environment_job.ENVIRONMENTS_FOLDER / environment)

    def _run(self, handle: EnvironmentHandle) -> RunDir:
        return RunDir(self._disk(handle.environment).run(handle.run).folder)

    def _jobs(self) -> tuple[dict[str, list[SlurmJob]], PendingQueue]:
        """Return all jobs of ours, by the run's name in their comment; and the pending jobs."""
        found: defaultdict[str, list[SlurmJob]] = defaultdict(list)
        listed = self.driver.jobs()
        for job in listed:
            if job.comment.startswith(environment_job.COMMENT_PREFIX):
                found[job.comment.removeprefix(environment_job.COMMENT_PREFIX)].append(job)
        return dict(found), PendingQueue(listed)

    def _by_id(self, name: str, numbers: Iterable[int]) -> list[SlurmJob]:
        """Return the jobs under these numbers that are this run's. A listing may leave out jobs that not all users may
        see."""
        jobs = [job for number in sorted(numbers) if number for job in self.driver.job(number)]
        return [job for job in jobs if job.comment == environment_job.COMMENT_PREFIX + name]

    def _cancel(self, name: str) -> None:
        for job in self._jobs()[0].get(name, ()):
            if not has_job_ended(job):
                self.driver.cancel(job.id)


def _read_job_id(run: RunDir) -> int:
    try:
        return int(os.readlink(run.path / "begun"))
    except (OSError, ValueError):
        return 0


def _read_run_files(run: RunDir) -> environment_job.RunFiles:
    stop = runner_reports.read_report(run.path / "stop.json")
    return environment_job.RunFiles(
        (run.path / "keeper.json").exists(),
        run.submitted(),
        _read_job_id(run),
        runner_reports.read_report(run.path / "keeper.status.json") or {},
        stop if stop and runner_reports.is_timestamp(stop.get("kill_at")) else None,
        _read_tail(run.path),
    )


def _read_tail(folder: Path) -> str:
    said = b"".join(logfiles.read_chunk(folder / name, -1000, 1000).data for name in ("slurm.log", "keeper.log"))
    return "\n".join(said.decode(errors="replace").strip().splitlines()[-6:])
