"""The files by which a node runner and whoever asks for it know of each other. Standard library only, Python 3.9 or
later.

Beside `<node>.json` (the spec) lie `<node>.lock` (held while the runner lives: one runner per spec, ever) and
`<node>.status.json` (replaced atomically at each change); in the same folder `stop.json` (a request to end) and, until
they were read, the secrets."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections import deque
from typing import Any

from fermi.runner.disk_space import Reserve
from fermi.runner.processes import boot_id

SECRETS = "secrets.json"
"""Where secrets lie that reach a runner through a folder: a file of its user's alone."""


SAMPLES = 8
"""Of telemetry, that lie in a file: two minutes."""


class Paths:
    def __init__(self, spec_path: str) -> None:
        stem = os.path.abspath(spec_path).removesuffix(".json")
        self.spec, self.lock, self.status, self.log = (stem + end for end in (".json", ".lock", ".status.json", ".log"))
        self.pulse = stem + ".pulse.json"
        self.telemetry = stem + ".telemetry.json"
        self.folder = os.path.dirname(stem)
        self.stop = os.path.join(self.folder, "stop.json")


def read_json(path: str) -> Any:
    """None when it is absent or was torn by a crash of the machine."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (FileNotFoundError, ValueError):
        return None


def write_atomically(path: str, data: Any, mode: int = 0o666) -> None:
    """`mode`: of the file, less the umask."""
    replace_atomically(path, json.dumps(data).encode(), mode)


def replace_atomically(path: str, content: bytes, mode: int = 0o666) -> None:
    """Raises OSError, and then leaves nothing behind."""
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
    """A file descriptor that holds the lock until it is closed or the process ends; None when another holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise
    return descriptor


def first_status(name: str, node_rank: int, state: str) -> dict[str, Any]:
    return {
        "name": name,
        "node_rank": node_rank,
        "state": state,
        "boot_id": boot_id(),
        "runner": None,
        "ranks": [],
    }


class StatusFile:
    """A disk that takes nothing ends no training: what could not be written is offered again."""

    def __init__(self, paths: Paths, ranks: int) -> None:
        self.paths = paths
        self.reserve = Reserve(paths.status, 4096 * (1 + ranks // 8))

    def save(self, status: dict[str, Any]) -> bool:
        """False when it has to come again. It has not where nobody wants it any more: the folder is gone."""
        content = json.dumps(status).encode()
        try:
            replace_atomically(self.paths.status, self.reserve.padded(content))
            self.reserve.take()
        except OSError:
            try:
                self.reserve.write(content)
            except OSError:
                return not os.path.exists(self.paths.spec)
        if status["state"] == "exited":
            self.reserve.give_back()
        return True


class PulseFile:
    """`{"pulse": [what is known of each rank]}`, replaced while something changes. A full disk harms nothing."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._before: list[dict[str, Any]] = []

    def save(self, pulses: list[dict[str, Any]]) -> None:
        known = [{name: value for name, value in pulse.items() if name != "at"} for pulse in pulses]
        if known == self._before:
            return
        with contextlib.suppress(OSError):
            replace_atomically(self.path, json.dumps({"pulse": pulses}).encode())
            self._before = known


class TelemetryFile:
    """`{"telemetry": [the newest samples]}`, replaced whenever some come. A full disk harms nothing."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._samples: deque[dict[str, Any]] = deque(maxlen=SAMPLES)

    def save(self, samples: list[dict[str, Any]]) -> None:
        self._samples.extend(samples)
        with contextlib.suppress(OSError):
            replace_atomically(self.path, json.dumps({"telemetry": list(self._samples)}).encode())
