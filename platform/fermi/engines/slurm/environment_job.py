"""An environment's run as one batch job on one node, which is the environment daemon; and the status of the run. Pure.

A job behaves as an attempt's (`render`, `state`): it is known by its comment, starts once, and never after it was
stopped. Slurm ends a job with SIGTERM, waits KillWait and sends SIGKILL (https://slurm.schedmd.com/scancel.html); the
batch script has become the environment daemon (`exec`), so that the daemon receives the signal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fermi.engines import connection_options
from fermi.engines.environments import (
    EnvironmentPhase,
    EnvironmentSpec,
    EnvironmentStatus,
    parse_activity,
    parse_cause,
)
from fermi.engines.slurm import causes, sandbox
from fermi.engines.slurm.allocations import ALLOCATION_KEY, COMMENT_PREFIX, ENVIRONMENTS_FOLDER, OWN_PYTHON_FOLDER
from fermi.engines.slurm.components import SITE_OPTIONS, VARIABLE_OPTIONS, WARNING_SIGNAL, parse_minutes
from fermi.engines.slurm.driver import SlurmJob
from fermi.engines.slurm.pending_queue import PendingQueue
from fermi.engines.slurm.render import NOT_OURS_EXIT_CODE, build_environment_lines, get_data_root, quote_word
from fermi.engines.slurm.state import EMPTY_QUEUE, LOST_SECONDS, SETTLE_SECONDS, has_job_ended
from fermi.jobs import bounds
from fermi.jobs.spec import Artifact, Cause, Rendered

MODULES_FOLDER = "modules"
"""Folder of our modules in a run's folder, which also the sandboxed process that prepares packages may read."""
GRACE_SECONDS = 10.0
WARNING_SECONDS = 90
"""Time before the time limit at which steps are signalled: ranks that train inside are asked to end. Other processes
ignore the signal."""


def render(spec: EnvironmentSpec, connection: Mapping[str, Any]) -> Rendered:
    """Return the script, its options and the environment daemon's spec."""
    connection = connection_options.resolve_project_options(connection, spec.project, VARIABLE_OPTIONS)
    disk = f"{get_data_root(connection)}/{ENVIRONMENTS_FOLDER}/{spec.id}"
    run = f"{disk}/runs/{spec.run}"
    options = _build_options(spec, connection, run)
    python = str(spec.engine.get("python") or connection.get("python") or "python3")
    threads = str(spec.cpu_cores)
    told = {
        "name": spec.run_name, "project": spec.project, "kind": spec.kind, "workspace": f"{disk}/workspace",
        "home": f"{disk}/home", "service": f"{run}/service", "cache": f"{disk}/home/.cache/fermi",
        "tools": f"{get_data_root(connection)}/tools", "python": python, "lab": python,
        "own": f"{disk}/home/{OWN_PYTHON_FOLDER}", "packages": list(spec.packages),
        "env": {"HOME": f"{disk}/home", "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads,
                "FERMI_ENVIRONMENT": spec.id, **spec.env},
        "ports": [{"name": port.name, "port": port.port} for port in spec.ports],
        "start_script": spec.start_script, "lazy": False, "foreground": True, "grace_seconds": GRACE_SECONDS,
        **bounds.build_environment_bounds(bounds.build_bounds(connection, shared=False), spec.disk_gb),
    }  # fmt: skip
    told |= sandbox.confine_environment(told, get_data_root(connection), connection, f"{run}/{MODULES_FOLDER}")
    return Rendered(
        spec.run_name,
        "slurm",
        (
            Artifact("script", "job.sh", _render_script(options, connection, run, python)),
            Artifact("submission", "submission", {"components": [options], "folder": run}),
            Artifact("keeper", "keeper", told),
        ),
    )


def _build_options(spec: EnvironmentSpec, connection: Mapping[str, Any], run: str) -> dict[str, str | int | bool]:
    found: dict[str, str | int | bool] = {
        "job-name": spec.run_name, "comment": COMMENT_PREFIX + spec.run_name,
        "output": f"{run}/slurm.log", "no-requeue": True,
    }  # fmt: skip
    if limit := spec.engine.get("time_limit") or connection.get("time_limit"):
        found["time"] = str(limit)
        found["signal"] = f"{WARNING_SIGNAL}@{min(WARNING_SECONDS, parse_minutes(str(limit)) * 30)}"
    found |= {key: value for key, value in (connection.get("options") or {}).items() if value is not False}
    found |= {key: value for key in SITE_OPTIONS if (value := spec.engine.get(key) or connection.get(key))}
    found |= {"nodes": 1, "ntasks": 1, "ntasks-per-node": 1, "cpus-per-task": spec.cpu_cores}
    found["mem"] = str(spec.engine.get("mem") or f"{spec.memory_gb}G")
    if spec.host:
        found["nodelist"] = spec.host
    kind = connection.get("gres") or ("" if spec.emulated else "gpu")
    if gres := spec.engine.get("gres") or (f"{kind}:{spec.gpu_count}" if kind and spec.gpu_count else ""):
        found["gres"] = str(gres)
    return found


def _render_script(
    options: Mapping[str, str | int | bool], connection: Mapping[str, Any], run: str, python: str
) -> str:
    keeper = f'{quote_word(python)} -m fermi.envd "$run/keeper.json"'
    return "\n".join(
        [
            "#!/bin/bash -l" if connection.get("modules") or connection.get("conda") else "#!/bin/bash",
            *(f"#SBATCH --{key}" if value is True else f"#SBATCH --{key}={quote_word(value)}"
              for key, value in options.items()),
            f"run={quote_word(run)}",
            'cd "$run" || exit 1',
            "# Once, and never after it was stopped: whatever was submitted twice or queued again.",
            'if [ -e stop.json ] || [ -n "${SLURM_RESTART_COUNT:-}" ] || ! ln -s "$SLURM_JOB_ID" begun; then',
            f"  exit {NOT_OURS_EXIT_CODE}",
            "fi",
            *build_environment_lines(connection),
            f'export PYTHONPATH="$run/{MODULES_FOLDER}:$PYTHONPATH"',
            "if [ -e secrets.json ]; then",
            "  exec 3<secrets.json && rm -f secrets.json",
            f"  exec {keeper} - <&3 3<&- >>keeper.log 2>&1",
            "fi",
            f"exec {keeper} >>keeper.log 2>&1",
            "",
        ]
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Content of a run's folder, read before Slurm is asked. `daemon_status`: status of its environment daemon; empty
    before it started."""

    exists: bool = False
    submitted: int = 0
    begun: int = 0
    daemon_status: Mapping[str, Any] = field(default_factory=dict)
    stop: Mapping[str, Any] | None = None
    tail: str = ""


def build_status(
    files: RunFiles, jobs: Sequence[SlurmJob], now: float, queue: PendingQueue = EMPTY_QUEUE
) -> EnvironmentStatus:
    """Return the status of a run. `jobs`: all that Slurm lists under the run's name. Users of the environment may write
    in the name of its environment daemon: what has the wrong shape counts as not reported."""
    alive = [job for job in jobs if not has_job_ended(job)]
    if alive:
        return _describe_live_job(files, next((job for job in alive if job.id == files.begun), alive[0]), now, queue)
    if jobs:
        return _describe_ended_job(
            files, next((job for job in jobs if job.id == files.begun), max(jobs, key=lambda job: job.id)), now
        )
    if files.exists and (files.submitted or files.begun):
        return _describe_forgotten_job(files, now)
    return EnvironmentStatus(EnvironmentPhase.ABSENT, left=False if files.stop is not None else None)


def _describe_live_job(files: RunFiles, job: SlurmJob, now: float, queue: PendingQueue) -> EnvironmentStatus:
    if cause := causes.find_end_cause(job):
        return EnvironmentStatus(EnvironmentPhase.ENDED, left=True, cause=_ignore_own_cancel(files, cause))
    if job.state in causes.PENDING_STATES:
        waiting = causes.find_waiting_cause(job, queue, now) if files.stop is None else None
        return EnvironmentStatus(EnvironmentPhase.STARTING, left=True, waiting=waiting)
    if not job.state:
        return EnvironmentStatus(EnvironmentPhase.UNKNOWN, left=True)
    state = files.daemon_status.get("state")
    if state == "exited":
        if _is_signalled(files):  # by whom, Slurm reports in a moment
            return EnvironmentStatus(EnvironmentPhase.UNKNOWN, left=True)
        return EnvironmentStatus(EnvironmentPhase.ENDED, left=True, cause=parse_cause(files.daemon_status.get("cause")))
    return EnvironmentStatus(
        EnvironmentPhase.RUNNING if state == "running" else EnvironmentPhase.STARTING,
        left=True,
        doing=parse_cause(files.daemon_status.get("doing")),
        facts={"host": job.nodes[:200], "engine": {ALLOCATION_KEY: job.id}},
        activity=parse_activity(files.daemon_status.get("activity")),
    )


def _describe_ended_job(files: RunFiles, job: SlurmJob, now: float) -> EnvironmentStatus:
    ended = causes.find_end_cause(job)
    if ended is None and files.stop is None and files.daemon_status.get("state") != "exited":
        if now - job.end < SETTLE_SECONDS:
            return EnvironmentStatus(EnvironmentPhase.UNKNOWN, left=True)
        why = files.tail or f"exit code {job.exit_code}"
        return EnvironmentStatus(
            EnvironmentPhase.ENDED, left=False, cause=Cause("JOB_FAILED", {"job": job.leader, "why": why})
        )
    cause = _ignore_own_cancel(files, ended) if ended else parse_cause(files.daemon_status.get("cause"))
    return EnvironmentStatus(EnvironmentPhase.ENDED, left=False, cause=cause)


def _describe_forgotten_job(files: RunFiles, now: float) -> EnvironmentStatus:
    """Return the status of a run that Slurm does not know any more, as of an attempt: some minutes after its end, or
    after its controller crashed."""
    if files.daemon_status.get("state") == "exited":
        return EnvironmentStatus(
            EnvironmentPhase.ENDED, left=False, cause=parse_cause(files.daemon_status.get("cause"))
        )
    late = files.stop is not None and (not files.daemon_status or now > files.stop["kill_at"] + LOST_SECONDS)
    lost = Cause("JOB_LOST", {"job": files.begun or files.submitted})
    return EnvironmentStatus(EnvironmentPhase.ENDED, left=False if late else None, cause=lost)


def _ignore_own_cancel(files: RunFiles, cause: Cause) -> Cause | None:
    return None if files.stop is not None and cause.code == "JOB_CANCELLED" else cause


def _is_signalled(files: RunFiles) -> bool:
    cause = parse_cause(files.daemon_status.get("cause"))
    return files.stop is None and cause is not None and cause.code == "KEEPER_LOST"
