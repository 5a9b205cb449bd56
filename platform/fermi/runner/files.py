"""The files through which a node runner and the platform communicate. Standard library only, Python 3.9 or later.

Next to `<node>.json` (the spec) are `<node>.lock` (held while the runner lives: one runner per spec, ever) and
`<node>.status.json` (replaced atomically at each change); in the same folder `stop.json` (a stop request) and, until
they have been read, the secrets.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections import deque
from typing import Any

from fermi.runner.disk_space import PreallocatedSpace
from fermi.runner.processes import read_boot_id

SECRETS_NAME = "secrets.json"
"""The file with secrets for a runner that gets them through a folder; only its user can read it."""


MAX_TELEMETRY_SAMPLES = 8
"""Telemetry samples in a file: two minutes."""


class RunnerPaths:
    """Paths of the files next to a spec."""

    def __init__(self, spec_path: str) -> None:
        stem = os.path.abspath(spec_path).removesuffix(".json")
        self.spec, self.lock, self.status, self.log = (stem + end for end in (".json", ".lock", ".status.json", ".log"))
        self.pulse = stem + ".pulse.json"
        self.telemetry = stem + ".telemetry.json"
        self.folder = os.path.dirname(stem)
        self.stop = os.path.join(self.folder, "stop.json")


def read_json(path: str) -> Any:
    """Return the content, or None if the file is absent or was torn by a crash of the machine."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (FileNotFoundError, ValueError):
        return None


def write_json_atomically(path: str, data: Any, mode: int = 0o666) -> None:
    """Replace a file with `data` as JSON. `mode`: of the file, less the umask. Raises OSError."""
    write_bytes_atomically(path, json.dumps(data).encode(), mode)


def write_bytes_atomically(path: str, content: bytes, mode: int = 0o666) -> None:
    """Replace a file. Raises OSError, and then leaves nothing behind."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def try_lock(path: str) -> int | None:
    """Return a descriptor that holds the lock until it is closed or the process ends, or None if another process holds
    it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise
    return descriptor


def build_first_status(name: str, node_rank: int, state: str) -> dict[str, Any]:
    """Return the status of a node without ranks."""
    return {
        "name": name,
        "node_rank": node_rank,
        "state": state,
        "boot_id": read_boot_id(),
        "runner": None,
        "ranks": [],
    }


class StatusFile:
    """Writes a node's status. A full disk ends no training: what could not be written is offered again."""

    def __init__(self, paths: RunnerPaths, ranks: int) -> None:
        self.paths = paths
        self.reserve = PreallocatedSpace(paths.status, 4096 * (1 + ranks // 8))

    def save(self, status: dict[str, Any]) -> bool:
        """Return False if the status has to be saved again; not if the folder is gone, because then nobody reads it."""
        content = json.dumps(status).encode()
        try:
            write_bytes_atomically(self.paths.status, self.reserve.padded(content))
            self.reserve.allocate()
        except OSError:
            try:
                self.reserve.write(content)
            except OSError:
                return not os.path.exists(self.paths.spec)
        if status["state"] == "exited":
            self.reserve.release()
        return True


class PulseFile:
    """Writes `{"pulse": [progress of each rank]}` when something has changed. A full disk does no harm."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._before: list[dict[str, Any]] = []

    def save(self, pulses: list[dict[str, Any]]) -> None:
        """Write the pulses unless they are unchanged."""
        known = [{name: value for name, value in pulse.items() if name != "at"} for pulse in pulses]
        if known == self._before:
            return
        with contextlib.suppress(OSError):
            write_bytes_atomically(self.path, json.dumps({"pulse": pulses}).encode())
            self._before = known


class TelemetryFile:
    """Writes `{"telemetry": [the newest samples]}` when there are new ones. A full disk does no harm."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._samples: deque[dict[str, Any]] = deque(maxlen=MAX_TELEMETRY_SAMPLES)

    def save(self, samples: list[dict[str, Any]]) -> None:
        """Add the samples and write the newest ones."""
        self._samples.extend(samples)
        with contextlib.suppress(OSError):
            write_bytes_atomically(self.path, json.dumps({"telemetry": list(self._samples)}).encode())
