"""The folder of one attempt, which the platform and the nodes share: what was submitted, and what the job wrote."""

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fermi.launch.errors import BackendError
from fermi.runner.node import SECRETS, read_json, write_atomically

OPEN = 0o2775
"""Whoever runs the job may not be who runs the platform; they share a group."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What lies there. `order`: None = nothing was written yet, or all was removed. `statuses`: by node rank."""

    order: Mapping[str, Any] | None
    submitted: int
    begun: int
    statuses: Mapping[int, Mapping[str, Any]]
    stop: Mapping[str, Any] | None
    end: Mapping[str, Any] | None
    tail: str = ""

    def node_name(self, node_rank: int) -> str:
        return str(self.order["names"][node_rank]) if self.order else ""


class RunDir:
    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, files: Mapping[str, str | Mapping[str, Any]]) -> None:
        """Each all at once: when an attempt is submitted again, its ranks may be reading it."""
        try:
            for name, content in files.items():
                text = content if isinstance(content, str) else json.dumps(content, sort_keys=True)
                path = self.path / name
                make(path.parent)
                with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
                    file.write(text)
                os.chmod(file.name, 0o664)
                os.replace(file.name, path)
        except OSError as error:
            raise BackendError("DISK_UNUSABLE", path=error.filename or str(self.path), why=error.strerror) from error

    def keep_secrets(self, values: Mapping[str, str], mode: int) -> None:
        """Until the runners have read them, or the attempt is over without."""
        try:
            make(self.path)
            descriptor, name = tempfile.mkstemp(dir=self.path)  # 0600
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump({**values}, file)
            os.chmod(name, mode)
            os.replace(name, self.path / SECRETS)
        except OSError as error:
            raise BackendError("DISK_UNUSABLE", path=error.filename or str(self.path), why=error.strerror) from error

    def drop_secrets(self) -> None:
        with contextlib.suppress(OSError):
            (self.path / SECRETS).unlink(missing_ok=True)

    def stop(self, grace_seconds: float, still_seconds: float | None = None) -> Mapping[str, Any]:
        """Asks for the end; a second, shorter grace wins. No job of the attempt begins once this is there."""
        make(self.path)
        stop, now = read_json(str(self.path / "stop.json")), time.time()
        if stop is None or now + grace_seconds < stop["kill_at"]:
            stop = {"grace_seconds": grace_seconds, "kill_at": now + grace_seconds, "still_seconds": still_seconds}
            self.write({"stop.json": stop})
        return dict(stop)

    def is_stopped(self) -> bool:
        return (self.path / "stop.json").exists()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """One process at a time; where the file system has no locks, the job's own look at `begun` still holds."""
        with open(self.path / "submit.lock", "a", encoding="utf-8") as file:
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def submitted(self) -> int:
        """The job's id; 0 = none was taken yet."""
        return int((read_json(str(self.path / "submitted.json")) or {}).get("job", 0))

    def remember(self, job_id: int) -> None:
        write_atomically(str(self.path / "submitted.json"), {"job": job_id})

    def look(self) -> Seen:
        """To be called before Slurm is asked: what is missing here and there is then missing indeed."""
        order = read_json(str(self.path / "order.json"))
        stop = read_json(str(self.path / "stop.json"))
        if order is None:
            return Seen(None, 0, 0, {}, stop, None)
        submitted = self.submitted()
        try:
            begun = int(os.readlink(self.path / "begun"))
        except (OSError, ValueError):
            begun = 0
        read = ((rank, read_json(str(self.path / f"node-{rank}.status.json"))) for rank in range(order["nodes"]))
        statuses = {rank: status for rank, status in read if status is not None}
        end = read_json(str(self.path / "end.json"))
        return Seen(order, submitted, begun, statuses, stop, end, self._tail() if begun or submitted else "")

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def _tail(self, size: int = 1000) -> str:
        try:
            with open(self.path / "slurm.log", "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - size))
                lines = file.read().decode(errors="replace").strip().splitlines()
        except FileNotFoundError:
            return ""
        return "\n".join(lines[-6:])


def make(folder: Path) -> None:
    """With all above it; those that are made are open to the group."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        with contextlib.suppress(FileExistsError):
            one.mkdir()
            one.chmod(OPEN)
