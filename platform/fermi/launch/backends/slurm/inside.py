"""Nodes of an attempt inside of environments: each is a step of the allocation that its environment has.

Nobody holds such a step. `srun` starts it and is killed, with the process by which it would end the step (`_shepherd_spawn`
in SchedMD/slurm, src/srun/srun_job.c), once the node runner says that it has begun. The step lasts as long as the runner
does; Slurm knows it by its name, `fermi:<attempt>/<node>` (decision 98)."""

import getpass
import os
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fermi.launch.backends import joined, reported
from fermi.launch.backends.slurm import components
from fermi.launch.backends.slurm.allocations import COMMENT, FOLDER, OWN_PYTHON, marks, options
from fermi.launch.backends.slurm.commands import Commands
from fermi.launch.backends.slurm.driver import Driver, Job
from fermi.launch.backends.slurm.refusals import ENDED
from fermi.launch.backends.slurm.rundir import Place, RunDir
from fermi.launch.errors import BackendError

BEGIN_SECONDS = 30.0
"""How long Slurm may take to begin a step, and Python to begin there."""
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LIVES = "RUNNING"


@dataclass(frozen=True, slots=True)
class Allocations:
    """Those of a cluster."""

    data_dir: Path
    folder: str
    driver: Driver

    def place(self, known: Mapping[str, Any]) -> Place:
        """Returns where a node is to begin. Raises BackendError (INSIDE_NOT_RUNNING)."""
        number, comment, python = self._run_of(known) if "made" in known else (int(known["job"]), "", "")
        found = self.driver.job(number) if number else []
        running = [job for job in found if job.id == number and job.state == _LIVES and _is(job, comment)]
        if not running:
            raise BackendError("INSIDE_NOT_RUNNING", environment=known["environment"])
        if running[0].user and running[0].user != getpass.getuser():
            raise BackendError(
                "SLURM_ALLOCATION_USER", permanent=True, environment=known["environment"], user=running[0].user,
                expected=getpass.getuser(),
            )  # fmt: skip
        host = str(known.get("host") or running[0].nodes)
        if not _HOST.fullmatch(host):
            raise BackendError("INSIDE_NOT_RUNNING", environment=known["environment"])
        return Place(number, host, _named(str(known["python"]), self._home(known)) or python)

    def _home(self, known: Mapping[str, Any]) -> Path | None:
        return self._disk(known["made"]) / "home" if "made" in known else None

    def _disk(self, environment: str) -> Path:
        if "/" in environment or environment in ("", ".", ".."):
            raise ValueError(environment)
        return self.data_dir / FOLDER / environment

    def _run_of(self, known: Mapping[str, Any]) -> tuple[int, str, str]:
        """Of the newest run that is not being stopped: Slurm's number, its comment, and the interpreter that notebooks
        and terminals of it have; 0: there is none."""
        disk = self._disk(known["made"])
        with suppress(OSError, ValueError):
            number = max((int(path.name) for path in (disk / "runs").iterdir() if path.name.isdigit()), default=0)
            run = disk / "runs" / str(number)
            told = reported.read(run / "keeper.status.json") or {}
            if not (run / "stop.json").exists() and told.get("state") == "running":
                job = int(os.readlink(run / "begun"))
                return job, f"{COMMENT}{known['made']}-{number}", self._interpreter(disk, run)
        return 0, "", ""

    def _interpreter(self, disk: Path, run: Path) -> str:
        """As the nodes see it; empty: that of the cluster. Only ranks run it: members may write to it."""
        own = disk / "home" / OWN_PYTHON
        if own.exists():
            return self._there(own)
        return _of_kernel(run / "service" / "share" / "kernels" / "python3" / "kernel.json")

    def _there(self, path: Path) -> str:
        return f"{self.folder}/{path.relative_to(self.data_dir)}"


def _is(job: Job, comment: str) -> bool:
    """Whether a number is still that of this allocation: of a run of ours, or of one that somebody offers."""
    return job.comment == comment if comment else marks(job.comment) is not None


def _named(python: str, home: Path | None) -> str:
    """Returns the interpreter that a task names: a path, or a kernel of its user's. Raises BackendError."""
    if not python or "/" in python:
        return python
    kernels = home / ".local" / "share" / "jupyter" / "kernels" if home else None
    found = _of_kernel(kernels / python / "kernel.json") if kernels and python not in (".", "..") else ""
    if not found:
        raise BackendError("INSIDE_PYTHON_UNUSABLE", permanent=True, python=python, why="there is no such kernel")
    return found


def _of_kernel(path: Path) -> str:
    argv = (reported.read(path) or {}).get("argv")
    first = argv[0] if isinstance(argv, list) and argv else ""
    return first if isinstance(first, str) and first.startswith("/") else ""


def address_of(place: Place, driver: Driver) -> str:
    """Returns where other nodes reach it."""
    found = (machine.address for machine in driver.machines() if machine.name == place.host)
    return next(found, "") or place.host


def begin(
    commands: Commands, run: RunDir, attempt: str, node_rank: int, place: Place, known: Mapping[str, Any]
) -> None:
    """Begins a node, unless it has begun or never may. Raises BackendError."""
    words = [
        *commands.step(place.job),
        *options(place.host),
        f"--job-name={components.step_name(attempt, node_rank)}",
        *known["shell"],
    ]
    if run.has_begun(node_rank) or run.is_stopped():
        return
    try:
        stream, process, complaints = joined.start(words, commands.variables())
    except joined.Silent as silent:
        raise _refused(silent.said, known, False) from silent
    with stream:
        ready = joined.answers(stream, BEGIN_SECONDS)
        late = not ready and process.poll() is None
    if ready and process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    elif late:
        process.terminate()
    if not ready and not run.has_begun(node_rank) and not run.is_stopped():
        raise _refused(complaints.said(), known, late)


def _refused(said: str, known: Mapping[str, Any], late: bool) -> BackendError:
    """What srun says, or what it started."""
    about = {"environment": known["environment"]}
    if ENDED.search(said):
        return BackendError("INSIDE_NOT_RUNNING", **about)
    if late or not said or said.startswith("srun:"):
        return BackendError("INSIDE_SILENT", **about, why=said or "Slurm did not begin the step in time")
    return BackendError("INSIDE_RUNNER_FAILED", permanent=True, **about, python="the nodes' interpreter", why=said)


__all__ = ["Allocations", "address_of", "begin"]
