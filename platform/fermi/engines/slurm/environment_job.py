"""An environment's run as one batch job on one node, which is the environment daemon; and the status of the run. Pure.

A job behaves as an attempt's (`render`, `state`): it is known by its comment, starts once, and never after it was
stopped. Slurm ends a job with SIGTERM, waits KillWait and sends SIGKILL (https://slurm.schedmd.com/scancel.html); the
batch script has become the environment daemon (`exec`), so that the daemon receives the signal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fermi.engines import connection_options
from fermi.engines.environments import Activity, Holder, HostedPhase, HostedSeen, HostedSpec, Kernel
from fermi.engines.slurm import causes, sandbox
from fermi.engines.slurm.allocations import ALLOCATION, COMMENT, FOLDER, OWN_PYTHON
from fermi.engines.slurm.components import CHOSEN, SITE, WARNING, minutes
from fermi.engines.slurm.driver import Job
from fermi.engines.slurm.pending_queue import Line
from fermi.engines.slurm.render import NOT_OURS, environment, folder_of, quoted
from fermi.engines.slurm.state import LOST_SECONDS, NOBODY, SETTLE_SECONDS, is_over
from fermi.jobs import bounds
from fermi.jobs.spec import Artifact, Cause, Rendered

MODULES = "modules"
"""Folder of our modules in a run's folder, which also the sandboxed process that prepares packages may read."""
GRACE_SECONDS = 10.0
WARNING_SECONDS = 90
"""Time before the time limit at which steps are signalled: ranks that train inside are asked to end. Other processes
ignore the signal."""


def render(spec: HostedSpec, connection: Mapping[str, Any]) -> Rendered:
    """Return the script, its options and the environment daemon's spec."""
    connection = connection_options.of_project(connection, spec.project, CHOSEN)
    disk = f"{folder_of(connection)}/{FOLDER}/{spec.id}"
    run = f"{disk}/runs/{spec.run}"
    options = _options(spec, connection, run)
    python = str(spec.engine.get("python") or connection.get("python") or "python3")
    threads = str(spec.cpu_cores)
    told = {
        "name": spec.run_name, "project": spec.project, "kind": spec.kind, "workspace": f"{disk}/workspace",
        "home": f"{disk}/home", "service": f"{run}/service", "cache": f"{disk}/home/.cache/fermi",
        "tools": f"{folder_of(connection)}/tools", "python": python, "lab": python,
        "own": f"{disk}/home/{OWN_PYTHON}", "packages": list(spec.packages),
        "env": {"HOME": f"{disk}/home", "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads,
                "FERMI_ENVIRONMENT": spec.id, **spec.env},
        "ports": [{"name": port.name, "port": port.port} for port in spec.ports],
        "start_script": spec.start_script, "lazy": False, "foreground": True, "grace_seconds": GRACE_SECONDS,
        **bounds.of_environment(bounds.order(connection, shared=False), spec.disk_gb),
    }  # fmt: skip
    told |= sandbox.confine_environment(told, folder_of(connection), connection, f"{run}/{MODULES}")
    return Rendered(
        spec.run_name,
        "slurm",
        (
            Artifact("script", "job.sh", _script(options, connection, run, python)),
            Artifact("submission", "submission", {"components": [options], "folder": run}),
            Artifact("keeper", "keeper", told),
        ),
    )


def _options(spec: HostedSpec, connection: Mapping[str, Any], run: str) -> dict[str, str | int | bool]:
    found: dict[str, str | int | bool] = {
        "job-name": spec.run_name, "comment": COMMENT + spec.run_name,
        "output": f"{run}/slurm.log", "no-requeue": True,
    }  # fmt: skip
    if limit := spec.engine.get("time_limit") or connection.get("time_limit"):
        found["time"] = str(limit)
        found["signal"] = f"{WARNING}@{min(WARNING_SECONDS, minutes(str(limit)) * 30)}"
    found |= {key: value for key, value in (connection.get("options") or {}).items() if value is not False}
    found |= {key: value for key in SITE if (value := spec.engine.get(key) or connection.get(key))}
    found |= {"nodes": 1, "ntasks": 1, "ntasks-per-node": 1, "cpus-per-task": spec.cpu_cores}
    found["mem"] = str(spec.engine.get("mem") or f"{spec.memory_gb}G")
    if spec.host:
        found["nodelist"] = spec.host
    kind = connection.get("gres") or ("" if spec.emulated else "gpu")
    if gres := spec.engine.get("gres") or (f"{kind}:{spec.gpu_count}" if kind and spec.gpu_count else ""):
        found["gres"] = str(gres)
    return found


def _script(options: Mapping[str, str | int | bool], connection: Mapping[str, Any], run: str, python: str) -> str:
    keeper = f'{quoted(python)} -m fermi.envd "$run/keeper.json"'
    return "\n".join(
        [
            "#!/bin/bash -l" if connection.get("modules") or connection.get("conda") else "#!/bin/bash",
            *(f"#SBATCH --{key}" if value is True else f"#SBATCH --{key}={quoted(value)}"
              for key, value in options.items()),
            f"run={quoted(run)}",
            'cd "$run" || exit 1',
            "# Once, and never after it was stopped: whatever was submitted twice or queued again.",
            'if [ -e stop.json ] || [ -n "${SLURM_RESTART_COUNT:-}" ] || ! ln -s "$SLURM_JOB_ID" begun; then',
            f"  exit {NOT_OURS}",
            "fi",
            *environment(connection),
            f'export PYTHONPATH="$run/{MODULES}:$PYTHONPATH"',
            "if [ -e secrets.json ]; then",
            "  exec 3<secrets.json && rm -f secrets.json",
            f"  exec {keeper} - <&3 3<&- >>keeper.log 2>&1",
            "fi",
            f"exec {keeper} >>keeper.log 2>&1",
            "",
        ]
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Look:
    """Content of a run's folder, read before Slurm is asked. `told`: status of its environment daemon; empty before it
    started."""

    there: bool = False
    submitted: int = 0
    begun: int = 0
    told: Mapping[str, Any] = field(default_factory=dict)
    stop: Mapping[str, Any] | None = None
    tail: str = ""


def seen(look: Look, jobs: Sequence[Job], now: float, line: Line = NOBODY) -> HostedSeen:
    """Return the status of a run. `jobs`: all that Slurm lists under the run's name. Users of the environment may write
    in the name of its environment daemon: a status of the wrong shape counts as not reported."""
    try:
        return _seen(look, jobs, now, line)
    except (AttributeError, KeyError, TypeError, ValueError):
        return _seen(replace(look, told={}), jobs, now, line)


def _seen(look: Look, jobs: Sequence[Job], now: float, line: Line) -> HostedSeen:
    alive = [job for job in jobs if not is_over(job)]
    if alive:
        return _alive(look, next((job for job in alive if job.id == look.begun), alive[0]), now, line)
    if jobs:
        return _over(look, next((job for job in jobs if job.id == look.begun), max(jobs, key=lambda job: job.id)), now)
    if look.there and (look.submitted or look.begun):
        return _forgotten(look, now)
    return HostedSeen(HostedPhase.ABSENT, left=False if look.stop is not None else None)


def _alive(look: Look, job: Job, now: float, line: Line) -> HostedSeen:
    if cause := causes.ended(job):
        return HostedSeen(HostedPhase.ENDED, left=True, cause=_but_ours(look, cause))
    if job.state in causes.WAITS:
        waiting = causes.waiting(job, line, now) if look.stop is None else None
        return HostedSeen(HostedPhase.STARTING, left=True, waiting=waiting)
    if not job.state:
        return HostedSeen(HostedPhase.UNKNOWN, left=True)
    state = look.told.get("state")
    if state == "exited":
        if _is_signalled(look):  # by whom, Slurm reports in a moment
            return HostedSeen(HostedPhase.UNKNOWN, left=True)
        return HostedSeen(HostedPhase.ENDED, left=True, cause=_cause(look.told.get("cause")))
    return HostedSeen(
        HostedPhase.RUNNING if state == "running" else HostedPhase.STARTING,
        left=True,
        doing=_cause(look.told.get("doing")),
        facts={"host": job.nodes[:200], "engine": {ALLOCATION: job.id}},
        activity=_activity(look.told.get("activity") or {}),
    )


def _over(look: Look, job: Job, now: float) -> HostedSeen:
    ended = causes.ended(job)
    if ended is None and look.stop is None and look.told.get("state") != "exited":
        if now - job.end < SETTLE_SECONDS:
            return HostedSeen(HostedPhase.UNKNOWN, left=True)
        why = look.tail or f"exit code {job.exit_code}"
        return HostedSeen(HostedPhase.ENDED, left=False, cause=Cause("JOB_FAILED", {"job": job.leader, "why": why}))
    cause = _but_ours(look, ended) if ended else _cause(look.told.get("cause"))
    return HostedSeen(HostedPhase.ENDED, left=False, cause=cause)


def _forgotten(look: Look, now: float) -> HostedSeen:
    """Return the status of a run that Slurm does not know any more, as of an attempt: some minutes after its end, or
    after its controller crashed."""
    if look.told.get("state") == "exited":
        return HostedSeen(HostedPhase.ENDED, left=False, cause=_cause(look.told.get("cause")))
    late = look.stop is not None and (not look.told or now > look.stop["kill_at"] + LOST_SECONDS)
    lost = Cause("JOB_LOST", {"job": look.begun or look.submitted})
    return HostedSeen(HostedPhase.ENDED, left=False if late else None, cause=lost)


def _but_ours(look: Look, cause: Cause) -> Cause | None:
    return None if look.stop is not None and cause.code == "JOB_CANCELLED" else cause


def _is_signalled(look: Look) -> bool:
    return look.stop is None and (look.told.get("cause") or {}).get("code") == "KEEPER_LOST"


def _cause(said: Mapping[str, Any] | None) -> Cause | None:
    return Cause(said["code"], said["params"]) if said else None


def _activity(said: Mapping[str, Any]) -> Activity:
    return Activity(
        said.get("at"),
        said.get("connections", 0),
        tuple(Kernel(**one) for one in said.get("kernels", ())),
        tuple(Holder(**one) for one in said.get("holders", ())),
    )
