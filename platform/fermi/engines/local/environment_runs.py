"""Dev environments on this machine, as files and processes:

<data>/environments/<id>/        disk.json: its project
    workspace/  home/            the disk
    runs/<number>/               keeper.json (spec), .lock, .status.json, .log, .sock, .token; stop.json;
                                 service/ (written by what runs there)
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fermi.envd import children, interpreter
from fermi.jobs.spec import JobSpec
from fermi.runner import files, processes, status, terminate
from fermi.runner.run_names import build_run_name

ENVIRONMENTS_FOLDER = "environments"


@dataclass(frozen=True)
class EnvironmentDisk:
    """Disk of one environment."""

    folder: Path

    @classmethod
    def from_environment(cls, data_dir: Path, environment: str) -> EnvironmentDisk:
        """Return the disk of an environment. Raise ValueError for an id that is no name of a folder."""
        if "/" in environment or environment in ("", ".", ".."):
            raise ValueError(environment)
        return cls(data_dir / ENVIRONMENTS_FOLDER / environment)

    @property
    def workspace(self) -> Path:
        """Folder of the user's files."""
        return self.folder / "workspace"

    @property
    def home(self) -> Path:
        """Home folder of its processes."""
        return self.folder / "home"

    @property
    def own(self) -> Path:
        """Folder of its own interpreter (`fermi.envd.interpreter`), which its members may write to."""
        return self.home / interpreter.OWN_FOLDER

    @property
    def project(self) -> str:
        """Project of the environment; empty: there is no such disk."""
        said = files.read_json(str(self.folder / "disk.json"))
        return str(said["project"]) if said else ""

    def has_any_file(self, paths: Iterable[str]) -> bool:
        """Return whether one of these files lies in its workspace, and no link leads out of it."""
        top = os.path.realpath(self.workspace)
        places = [Path(os.path.realpath(os.path.join(top, path))) for path in paths]
        return any(there.is_relative_to(top) and there.is_file() for there in places)

    def run(self, number: int) -> EnvironmentRun:
        """Return a run by its number."""
        return EnvironmentRun(self.folder / "runs" / str(number), build_run_name(self.folder.name, number))

    def runs(self) -> list[EnvironmentRun]:
        """Return all runs that have a folder."""
        there = self.folder / "runs"
        return [self.run(int(path.name)) for path in there.iterdir() if path.name.isdecimal()] if there.is_dir() else []

    def make(self, project: str) -> None:
        """Make the folders. Other users may pass through them, and read nothing that they are not given. Raise
        OSError."""
        for folder in (self.folder.parent, self.folder, self.folder / "runs"):
            folder.mkdir(parents=True, exist_ok=True)
            if folder.stat().st_uid == os.geteuid():
                folder.chmod(0o711)
        if not self.project:
            files.write_json_atomically(str(self.folder / "disk.json"), {"project": project}, 0o600)

    def remove(self) -> bool:
        """Remove all of it; return whether it is gone. Folders may have been made unwritable by the environment's
        users."""
        for folder, folders, _ in os.walk(self.folder):
            for name in folders:
                path = os.path.join(folder, name)
                if not os.path.islink(path) and os.stat(path).st_uid == os.geteuid():
                    os.chmod(path, 0o700)
        shutil.rmtree(self.folder, ignore_errors=True)
        return not self.folder.exists()


@dataclass(frozen=True)
class EnvironmentRun:
    """Folder of one run, by which its processes are marked. `name`: as engines know it."""

    folder: Path
    name: str

    @property
    def number(self) -> int:
        """Number of the run."""
        return int(self.folder.name)

    @property
    def spec(self) -> Path:
        """Spec of its environment daemon."""
        return self.folder / "keeper.json"

    @property
    def log(self) -> Path:
        """Log of its environment daemon and service."""
        return self.folder / "keeper.log"

    @property
    def is_stopped(self) -> bool:
        """Whether the run was asked to end."""
        return (self.folder / "stop.json").exists()

    def read_daemon_status(self) -> dict[str, Any]:
        """Return the last status of its environment daemon; empty before it started."""
        return files.read_json(files.RunnerPaths(str(self.spec)).status) or {}

    def read_state(self) -> status.NodeState:
        """Return the state of its environment daemon."""
        return status.read_status(self.spec)

    def strays(self) -> list[dict[str, Any]]:
        """Return the processes that a killed environment daemon has left behind; only for a run whose daemon does not
        live."""
        return children.list_marked_processes(str(self.folder))

    def request_end(self, grace_seconds: float) -> None:
        """Ask for the end without waiting; to be called until nothing is left. Raise OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        there = self.spec.exists()
        terminate.end_runners(self.folder, [self.spec] if there else [], grace_seconds)
        if there and self.read_state().state == "lost":
            self.clear()
            self._close()

    def rest(self, *, kill: bool) -> None:
        """Ask its processes to end, and forbid nothing: it starts again when it is dialled, or counts as lost."""
        if (runner := self.read_daemon_status().get("runner")) and processes.send_signal(
            runner, signal.SIGKILL if kill else signal.SIGTERM
        ):
            return
        self.clear()

    def clear(self) -> None:
        """Kill what a dead environment daemon has left behind."""
        for stray in self.strays():
            processes.send_signal(stray, signal.SIGKILL)

    def _close(self) -> None:
        """Write a dead environment daemon's status, under its lock, once nothing is left: as it would have ended it."""
        lock = files.try_lock(files.RunnerPaths(str(self.spec)).lock)
        if lock is None:
            return
        try:
            if self.read_state().state == "lost" and not self.strays():
                files.write_json_atomically(
                    files.RunnerPaths(str(self.spec)).status, {**self.read_daemon_status(), "state": "exited"}, 0o600
                )
        finally:
            os.close(lock)


def iterate_disks(data_dir: Path) -> Iterator[EnvironmentDisk]:
    """Yield the disks of all environments."""
    there = data_dir / ENVIRONMENTS_FOLDER
    for folder in sorted(there.iterdir()) if there.is_dir() else []:
        yield EnvironmentDisk(folder)


def list_living_runs(data_dir: Path) -> list[EnvironmentRun]:
    """Return the runs of which processes live."""
    return [run for disk in iterate_disks(data_dir) for run in disk.runs() if run.read_state().left or _has_strays(run)]


def _has_strays(run: EnvironmentRun) -> bool:
    return run.read_state().state == "lost" and bool(run.strays())


def find_workspace(data_dir: Path, job: JobSpec) -> Path | None:
    """Return the workspace of the environment of a job in which its script or module was written: the master's, or else
    the first of the others that has it. None: in none. An environment that another project shares gives this one its
    GPUs, and not its files."""
    paths = job.entrypoint.paths if job.entrypoint else ()
    if not paths or os.path.isabs(paths[0]):
        return None
    others = [node.id for node in job.nodes if node.id != job.master]
    for environment in (job.master, *others):
        try:
            disk = EnvironmentDisk.from_environment(data_dir, environment)
            if disk.project and disk.project == job.project and disk.has_any_file(paths):
                return disk.workspace
        except (OSError, ValueError):
            continue
    return None
