"""Folder of one attempt, which the platform and the nodes share: what was submitted, and what the job wrote.

For nodes inside of environments it has besides: `places.json`, where each is to start, written once; `head`, the head's
address; `node-<k>.begun`, made by the step that runs the node.
"""

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fermi.engines import logfiles, runner_reports
from fermi.jobs.errors import BackendError
from fermi.runner.files import SECRETS_NAME, write_json_atomically

FOLDER_MODE = 0o2775
"""Mode of folders: the job's user may not be the platform's; they share a group."""


@dataclass(frozen=True, slots=True)
class StepLocation:
    """Location of a node inside. `job`: Slurm's number of the allocation; `host`: the Slurm node; `python`: the
    interpreter of its ranks, empty: as planned."""

    job: int
    host: str
    python: str = ""


@dataclass(frozen=True, slots=True)
class RunDirContents:
    """Content of the folder. `order`: None = nothing was written yet, or all was removed. `statuses`: by node rank.
    `places`: of nodes inside, and `started_inside`: those that have started, by node rank."""

    order: Mapping[str, Any] | None
    submitted: int
    begun: int
    statuses: Mapping[int, Mapping[str, Any]]
    stop: Mapping[str, Any] | None
    end: Mapping[str, Any] | None
    tail: str = ""
    places: Mapping[int, StepLocation] = field(default_factory=dict)
    started_inside: frozenset[int] = frozenset()

    @property
    def inside(self) -> frozenset[int]:
        """Ranks of the nodes that run inside of environments."""
        return frozenset(map(int, (self.order or {}).get("inside", ())))

    def node_name(self, node_rank: int) -> str:
        """Return the name of a node's environment; empty: not known."""
        return str(self.order["names"][node_rank]) if self.order else ""


class RunDir:
    """Folder of one attempt or run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, files: Mapping[str, str | Mapping[str, Any]]) -> None:
        """Write files, each atomically: when an attempt is submitted again, its ranks may be reading it. Raise
        BackendError."""
        try:
            for name, content in files.items():
                text = content if isinstance(content, str) else json.dumps(content, sort_keys=True)
                path = self.path / name
                make_folder(path.parent)
                with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
                    file.write(text)
                os.chmod(file.name, 0o664)
                os.replace(file.name, path)
        except OSError as error:
            raise BackendError("DISK_UNUSABLE", path=error.filename or str(self.path), why=error.strerror) from error

    def write_secrets(self, values: Mapping[str, str], mode: int) -> None:
        """Write the values of secrets, until the runners have read them, or the attempt is over without. Raise
        BackendError."""
        try:
            make_folder(self.path)
            descriptor, name = tempfile.mkstemp(dir=self.path)  # 0600
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump({**values}, file)
            os.chmod(name, mode)
            os.replace(name, self.path / SECRETS_NAME)
        except OSError as error:
            raise BackendError("DISK_UNUSABLE", path=error.filename or str(self.path), why=error.strerror) from error

    def delete_secrets(self) -> None:
        """Delete the values of secrets."""
        with contextlib.suppress(OSError):
            (self.path / SECRETS_NAME).unlink(missing_ok=True)

    def stop(self, grace_seconds: float, still_seconds: float | None = None) -> Mapping[str, Any]:
        """Write the request to end and return it; a second, shorter grace replaces it. No job of the attempt starts
        once it exists."""
        make_folder(self.path)
        stop, now = self._stop(), time.time()
        if stop is None or now + grace_seconds < stop["kill_at"]:
            stop = {"grace_seconds": grace_seconds, "kill_at": now + grace_seconds, "still_seconds": still_seconds}
            self.write({"stop.json": stop})
        return dict(stop)

    def is_stopped(self) -> bool:
        """Return whether the attempt was asked to end."""
        return (self.path / "stop.json").exists()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder's lock, one process at a time; where the file system has no locks, the job's own check of
        `begun` still holds."""
        lock = os.open(self.path / "submit.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o664)
        try:  # opened for both, so that a pipe in its place does not block
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def submitted(self) -> int:
        """Return the job's id; 0 = none was submitted yet."""
        job = (runner_reports.read_report(self.path / "submitted.json") or {}).get("job", 0)
        return int(job) if runner_reports.build_int_check(0, 1 << 40)(job) else 0

    def write_job_id(self, job_id: int) -> None:
        """Write the job's id."""
        write_json_atomically(str(self.path / "submitted.json"), {"job": job_id})

    def places(self) -> dict[int, StepLocation]:
        """Return the locations of nodes inside by node rank; empty: none was determined yet."""
        found = {}
        for rank, one in (runner_reports.read_report(self.path / "places.json") or {}).items():
            with contextlib.suppress(KeyError, TypeError, ValueError):
                found[int(rank)] = StepLocation(int(one["job"]), str(one["host"]), str(one["python"]))
        return found

    def write_places(self, places: Mapping[int, StepLocation], head: str) -> None:
        """Write the locations. `head`: the address of the head node; empty: it is not inside, and its job writes
        that."""
        texts = {"head": head} if head else {}
        self.write({**texts, "places.json": {str(rank): asdict(place) for rank, place in places.items()}})

    def has_begun(self, node_rank: int) -> bool:
        """Return whether a node inside has started."""
        return os.path.lexists(self.path / f"node-{node_rank}.begun")

    def read_contents(self) -> RunDirContents:
        """Return the content of the folder. To be called before Slurm is asked: what is missing in both is then really
        missing."""
        order, stop = runner_reports.read_report(self.path / "order.json"), self._stop()
        if order is None or not _is_order(order):
            return RunDirContents(None, 0, 0, {}, stop, None)
        submitted = self.submitted()
        try:
            begun = int(os.readlink(self.path / "begun"))
        except (OSError, ValueError):
            begun = 0
        read = (
            (rank, runner_reports.read_report(self.path / f"node-{rank}.status.json")) for rank in range(order["nodes"])
        )
        statuses = {rank: status for rank, found in read if (status := runner_reports.parse_status(found))}
        end = runner_reports.read_report(self.path / "end.json")
        seen = RunDirContents(order, submitted, begun, statuses, stop, end, self._tail() if begun or submitted else "")
        if not seen.inside:
            return seen
        begun_inside = frozenset(rank for rank in seen.inside if self.has_begun(rank))
        return replace(seen, places=self.places(), started_inside=begun_inside)

    def _stop(self) -> dict[str, Any] | None:
        stop = runner_reports.read_report(self.path / "stop.json")
        return stop if stop and runner_reports.is_timestamp(stop.get("kill_at")) else None

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _tail(self, size: int = 1000) -> str:
        try:
            said = logfiles.read_chunk(self.path / "slurm.log", -size, size).data
        except IsADirectoryError:
            return ""
        return "\n".join(said.decode(errors="replace").strip().splitlines()[-6:])


def _is_order(data: Mapping[str, Any]) -> bool:
    """Return whether a value is an order as `render.build_files` writes it; the job's user may write there too."""
    names = data.get("names")
    inside = data.get("inside", {})
    if not isinstance(inside, dict) or not all(rank.isdigit() and _is_inside(one) for rank, one in inside.items()):
        return False
    return isinstance(names, list) and bool(names) and data.get("nodes") == len(names)


def _is_inside(data: Any) -> bool:
    return isinstance(data, dict) and runner_reports.build_int_check(1, 1 << 20)(data.get("processes"))


def make_folder(folder: Path) -> None:
    """Make a folder with all above it; those that are made are writable by the group."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        with contextlib.suppress(FileExistsError):
            one.mkdir()
            one.chmod(FOLDER_MODE)
