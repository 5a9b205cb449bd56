"""Lock and process list of a data directory: one platform per directory.

`run/lock` is locked (flock) for as long as the supervisor lives, so whether a platform runs is never guessed.
`run/processes.json` names the supervisor and its children by pid and start time: what a killed supervisor left running
is found again, and a pid that was reused is not mistaken for it.
"""

import fcntl
import json
import os
import signal
import stat
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from fermi.runner import processes
from fermi.runner.files import read_json
from fermi.runner.processes import read_boot_id, read_start_time
from server import paths
from server.up.checks import StartupError

POLL_SECONDS = 0.05


@dataclass(frozen=True)
class PlatformProcess:
    """A process of the platform, identified by pid, start time and boot."""

    name: str
    pid: int
    start_time: int | None
    boot_id: str

    @classmethod
    def from_pid(cls, name: str, pid: int) -> "PlatformProcess":
        """Return the process with this pid."""
        return cls(name, pid, read_start_time(pid), read_boot_id())

    def alive(self) -> bool:
        """Return True if this very process still runs."""
        return self.boot_id == read_boot_id() and self.start_time is not None and processes.is_alive(asdict(self))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; does nothing where the process has ended."""
        if self.alive():
            processes.send_signal(asdict(self), number)


class Pidfile:
    """The run directory of one data directory."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.dir = paths.get_run_dir(data)
        self._lock: IO[str] | None = None

    def open(self) -> None:
        """Create the directory, readable by its owner only. Raise StartupError where another user owns it: a
        predictable name in /tmp could be prepared by somebody else."""
        self.dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        info = self.dir.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
            raise StartupError(f"{self.dir} belongs to somebody else: remove it, or choose another DATA.")
        self.dir.chmod(0o700)

    def acquire(self) -> None:
        """Lock the directory until this process ends. Raise StartupError where another platform holds the lock."""
        self.open()
        self._lock = (self.dir / "lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            supervisor = self.supervisor()
            who = f" (process {supervisor.pid})" if supervisor else ""
            raise StartupError(
                f"A platform already runs on this data directory{who}: stop it with `make down`, "
                "or choose another with DATA=<directory>."
            ) from None
        paths.get_notes_path(self.dir).unlink(missing_ok=True)

    def publish(self, url: str) -> None:
        """Write the address where the command line reads it: `$DATA/run/url`, wherever the sockets are."""
        place = self.data / "run"
        place.mkdir(exist_ok=True, mode=0o700)
        (place / "url").write_text(f"{url}\n")

    def withdraw(self) -> None:
        """Delete the published address."""
        (self.data / "run" / "url").unlink(missing_ok=True)

    def write(self, processes: Iterable[PlatformProcess]) -> None:
        """Replace the list of processes atomically."""
        new = self.dir / "processes.json.new"
        new.write_text(json.dumps([asdict(process) for process in processes]))
        new.replace(self.dir / "processes.json")

    def processes(self) -> list[PlatformProcess]:
        """Return the supervisor, then its children, as last written."""
        return [PlatformProcess(**entry) for entry in read_json(str(self.dir / "processes.json")) or []]

    def supervisor(self) -> PlatformProcess | None:
        """Return the supervisor if it is alive."""
        return next((process for process in self.processes()[:1] if process.alive()), None)

    def stop_leftovers(self, grace_s: float = 10) -> list[str]:
        """End what a killed supervisor left running and return the names; SIGKILL after `grace_s` seconds."""
        left = [process for process in self.processes() if process.alive() and process.pid != os.getpid()]
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in left:
                process.signal(number)
            wait_until_gone(left, grace_s)
        return [process.name for process in left]


def wait_until_gone(waiting: list[PlatformProcess], timeout_s: float) -> bool:
    """Return True once all processes have ended, False after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while any(process.alive() for process in waiting):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
