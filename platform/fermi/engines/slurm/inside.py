"""Nodes of an attempt inside of environments: each is a step of the allocation that its environment has.

No process of ours holds such a step. `srun` starts it and is killed once the node runner reports that it has started,
together with the process by which it would end the step (`_shepherd_spawn` in SchedMD/slurm, src/srun/srun_job.c). The
step lasts as long as the runner does; Slurm knows it by its name, `fermi:<attempt>/<node>` (decision 98).
"""

import getpass
import os
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fermi.engines import runner_reports, subprocess_stream
from fermi.engines.inside import bundle
from fermi.engines.inside.session import InsideError, InsideSession
from fermi.engines.slurm import components
from fermi.engines.slurm.allocations import (
    COMMENT_PREFIX,
    ENVIRONMENTS_FOLDER,
    OWN_PYTHON_FOLDER,
    build_step_options,
    parse_offer,
)
from fermi.engines.slurm.commands import SlurmCommands
from fermi.engines.slurm.driver import SlurmDriver, SlurmJob
from fermi.engines.slurm.rejections import ENDED_PATTERN
from fermi.engines.slurm.render import build_variables
from fermi.engines.slurm.rundir import RunDir, StepLocation
from fermi.jobs.errors import BackendError
from fermi.runner.run_names import build_run_name

STEP_START_SECONDS = 30.0
"""How long Slurm may take to start a step, and Python to start there."""
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_RUNNING_STATE = "RUNNING"


@dataclass(frozen=True, slots=True)
class ManagedRun:
    """Newest run of an environment that the platform made, where it is not being stopped."""

    environment: str
    number: int
    job: int
    disk: Path
    run: Path

    @property
    def comment(self) -> str:
        """Comment of its job."""
        return COMMENT_PREFIX + build_run_name(self.environment, self.number)

    @classmethod
    def find_run(cls, data_dir: Path, environment: str) -> Self | None:
        """Return the run; None: it does not run."""
        if "/" in environment or environment in ("", ".", ".."):
            raise ValueError(environment)
        disk = data_dir / ENVIRONMENTS_FOLDER / environment
        try:
            number = max(int(path.name) for path in (disk / "runs").iterdir() if path.name.isdigit())
            run = disk / "runs" / str(number)
            job = int(os.readlink(run / "begun"))
        except (OSError, ValueError):
            return None
        told = runner_reports.read_report(run / "keeper.status.json") or {}
        if (run / "stop.json").exists() or told.get("state") != "running":
            return None
        return cls(environment, number, job, disk, run)

    def interpreter(self, data_dir: Path, folder: str) -> str:
        """Return the interpreter of its notebooks and terminals, as its node sees it (`folder`: the platform's data
        directory there); empty: the cluster's. Only ranks may run it: members of the project can write to it."""
        own = self.disk / "home" / OWN_PYTHON_FOLDER
        if (own / "made.json").exists():
            return f"{folder}/{(own / 'bin' / 'python').relative_to(data_dir)}"
        return _read_kernel_interpreter(self.run / "service" / "share" / "kernels" / "python3")

    def kernel(self, name: str) -> str:
        """Return the interpreter of a kernel that its user has installed; empty: there is none."""
        kernels = self.disk / "home" / ".local" / "share" / "jupyter" / "kernels"
        return _read_kernel_interpreter(kernels / name) if name not in (".", "..") else ""


@dataclass(frozen=True, slots=True)
class Allocations:
    """Allocations of a cluster. `folder`: the platform's data directory, as the nodes see it."""

    data_dir: Path
    folder: str
    driver: SlurmDriver

    def locate_node(self, order: Mapping[str, Any]) -> StepLocation:
        """Return where a node is to start; `order`: see `allocations.build_order`. Raise BackendError."""
        about = {"environment": order["environment"]}
        made = ManagedRun.find_run(self.data_dir, order["made"]) if "made" in order else None
        job = self._job(made.job if made else int(order.get("job", 0)), made.comment if made else "")
        host = str(order.get("host") or job.nodes) if job else ""
        if job is None or not _HOST.fullmatch(host):
            raise BackendError("INSIDE_NOT_RUNNING", **about)
        if job.user and job.user != getpass.getuser():
            params = {**about, "user": job.user, "expected": getpass.getuser()}
            raise BackendError("SLURM_ALLOCATION_USER", permanent=True, **params)
        return StepLocation(job.id, host, self._interpreter(str(order["python"]), made, about["environment"]))

    def _job(self, number: int, comment: str) -> SlurmJob | None:
        """Return the job, where that number is still this allocation's: of a run of ours, or of one that a user
        offers."""
        for job in self.driver.job(number) if number else ():
            is_it = job.comment == comment if comment else parse_offer(job.comment) is not None
            if job.id == number and job.state == _RUNNING_STATE and is_it:
                return job
        return None

    def _interpreter(self, named: str, run: ManagedRun | None, environment: str) -> str:
        """Return the interpreter of ranks. `named`: by the task, a path or a kernel. Raise BackendError."""
        if "/" in named:
            return named
        if not named:
            return run.interpreter(self.data_dir, self.folder) if run else ""
        if not (found := run.kernel(named) if run else ""):
            why = "there is no kernel of this name"
            about = {"environment": environment, "python": named, "why": why}
            raise BackendError("INSIDE_PYTHON_UNUSABLE", permanent=True, **about)
        return found


def _read_kernel_interpreter(folder: Path) -> str:
    """Return the interpreter that a kernelspec names (jupyter_client, `KernelSpec.argv`); empty: none."""
    argv = (runner_reports.read_report(folder / "kernel.json") or {}).get("argv")
    first = argv[0] if isinstance(argv, list) and argv else ""
    return first if isinstance(first, str) and first.startswith("/") else ""


def find_address(location: StepLocation, driver: SlurmDriver) -> str:
    """Return the address at which other nodes reach it."""
    found = (machine.address for machine in driver.machines() if machine.name == location.host)
    return next(found, "") or location.host


def start_node(
    commands: SlurmCommands, run: RunDir, attempt: str, node_rank: int, location: StepLocation, order: Mapping[str, Any]
) -> None:
    """Start a node, unless it has started or never may. Raise BackendError."""
    words = [
        *commands.step(location.job),
        *build_step_options(location.host),
        f"--job-name={components.build_step_name(attempt, node_rank)}",
        *order["shell"],
    ]
    if run.has_begun(node_rank) or run.is_stopped():
        return
    try:
        stream, process, complaints = subprocess_stream.open_stream(
            words, commands.variables(build_variables(getpass.getuser()))
        )
    except subprocess_stream.ProgramNotReadyError as silent:
        raise _build_step_error(silent.said, order, False) from silent
    with stream:
        ready = subprocess_stream.wait_until_ready(stream, STEP_START_SECONDS)
        message = "" if ready else complaints.read_text()  # first: a step ends a moment after its stream
        late = not ready and process.poll() is None
    if ready and process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    elif late:
        process.terminate()
    if not ready and not run.has_begun(node_rank) and not run.is_stopped():
        raise _build_step_error(message, order, late)


def enter_allocation(
    commands: SlurmCommands, location: StepLocation, shell: list[str], lines: list[str], python: str, name: str
) -> InsideSession:
    """Return a session with `fermi.inside` as a step of the allocation; it ends with the session. `lines`: of the
    shell, before it starts. Raise BackendError."""
    script = "\n".join([*lines, 'exec "$@"'])
    words = [
        *commands.step(location.job),
        *build_step_options(location.host),
        *shell,
        "-c",
        script,
        "fermi",
        *bundle.build_command(python),
    ]
    try:
        stream, process, complaints = subprocess_stream.open_stream(
            words, commands.variables(build_variables(getpass.getuser()))
        )
    except subprocess_stream.ProgramNotReadyError as silent:
        raise InsideError("INSIDE_SILENT", environment=name, why=silent.said) from silent
    try:
        return InsideSession(stream).greet()
    except InsideError as error:
        process.terminate()
        said = complaints.read_text()
        if error.code == "INSIDE_SILENT" and said:
            raise _build_step_error(said, {"environment": name}, True) from error
        error.params.setdefault("environment", name)
        raise


def _build_step_error(message: str, order: Mapping[str, Any], late: bool) -> BackendError:
    """Return the error for a message of srun, or of the program that it started."""
    about = {"environment": order["environment"]}
    if ENDED_PATTERN.search(message):
        return BackendError("INSIDE_NOT_RUNNING", **about)
    by_slurm = all(line.startswith(("srun:", "slurmstepd")) for line in message.splitlines())
    if late or by_slurm:
        return BackendError("INSIDE_SILENT", **about, why=message or "Slurm did not begin the step in time")
    return BackendError("INSIDE_RUNNER_FAILED", permanent=True, **about, python="the nodes' interpreter", why=message)
