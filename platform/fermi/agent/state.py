"""The agent's folder:

<state>/machine                        a random word: together with the host's own id it identifies the machine
<state>/workers/<id>/lock              held by the agent that drives the worker
<state>/workers/<id>/secret            the worker's own token, readable by us alone
<state>/workers/<id>/runs/<attempt>/   see `runs.py`
<state>/logs/<task>/<attempt>/         <rank>.log
"""

import hashlib
import os
import uuid
from contextlib import suppress
from pathlib import Path

from fermi.agent.errors import AgentError
from fermi.runner import files


class StateDirectory:
    """Creates and locks the folder. Raises AgentError when it cannot be written, or when another agent drives one of
    `workers`."""

    def __init__(self, path: Path, workers: list[str]) -> None:
        self.path = path
        self._locks = []
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            for worker in workers:
                self.worker(worker).mkdir(parents=True, exist_ok=True)
            self.machine = self._machine()
        except OSError as error:
            why = error.strerror or str(error)
            raise AgentError("WORKER_STATE_UNUSABLE", path=str(error.filename or path), why=why) from error
        for worker in workers:
            lock = files.try_lock(str(self.worker(worker) / "lock"))
            if lock is None:
                raise AgentError("WORKER_DRIVEN_HERE", id=worker, path=str(path))
            self._locks.append(lock)

    def worker(self, worker: str) -> Path:
        """Return the folder of a worker."""
        return self.path / "workers" / worker

    def secret(self, worker: str) -> str:
        """Return the worker's token; empty if it was not registered from here."""
        try:
            return (self.worker(worker) / "secret").read_text().strip()
        except FileNotFoundError:
            return ""

    def store_secret(self, worker: str, secret: str) -> None:
        """Store the worker's token."""
        _write_private_file(self.worker(worker) / "secret", secret)

    def close(self) -> None:
        """Release the locks."""
        while self._locks:
            os.close(self._locks.pop())

    def _machine(self) -> str:
        """Return the machine's id. A copied folder is another machine, and so is a host whose folder was lost."""
        path = self.path / "machine"
        if not path.exists():
            _write_private_file(path, uuid.uuid4().hex)
        host = ""
        with suppress(OSError):
            host = Path("/etc/machine-id").read_text(encoding="utf-8").strip()
        return hashlib.sha256(f"{host} {path.read_text()}".encode()).hexdigest()[:32]


def _write_private_file(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
