"""`make dev`: a platform that restarts when its source changes, for this machine only.

Python processes are restarted when a source file changes, after any new migrations. The console is served by Vite, one
port above, which reloads pages by itself and forwards other requests to the platform. Unlike `make up`, it stops all
training when it ends.
"""

import os
import shutil
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from server import paths
from server.up import checks, console, running_tasks
from server.up.down import stop_training
from server.up.listen_address import ListenAddress
from server.up.pidfile import wait_until_gone
from server.up.supervisor import ChildStartError, Platform

WATCHED_FOLDERS = ("apps", "platform")
WATCHED_SUFFIXES = (".py", ".toml", ".json", ".sh", ".html", ".mo")
POLL_SECONDS = 0.5
GRACE_SECONDS = 1  # less than an open event stream would hold the web process
VITE = paths.ROOT / "frontend" / "node_modules" / "vite" / "bin" / "vite.js"

SourceState = dict[str, tuple[int, int]]


def scan_source(root: Path) -> SourceState:
    """Return the modification time and size of each source file."""
    return {entry.path: (entry.stat().st_mtime_ns, entry.stat().st_size) for entry in _files(root)}


def _files(root: Path) -> Iterator[os.DirEntry[str]]:
    folders = [root / name for name in WATCHED_FOLDERS]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    folders.append(Path(entry.path))
                elif entry.name.endswith(WATCHED_SUFFIXES) and not entry.name.startswith("."):
                    yield entry


def list_changed(before: SourceState, after: SourceState) -> list[str]:
    """Return the files that were added, removed or changed."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


class DevPlatform(Platform):
    """A platform with Vite in front, which restarts its processes when the source changes."""

    def __init__(self, data: Path, address: ListenAddress) -> None:
        super().__init__(data, address)
        self._vite = replace(address, port=address.port + 1)
        self.site = self._vite.url
        self._node = shutil.which("node") or ""

    def run(self) -> int:
        """Serve as `Platform.run`. Raise StartupError for an address that is not loopback, or without the front end's
        packages."""
        if not self.address.loopback:
            raise checks.StartupError("`make dev` serves this machine alone: leave HOST out.")
        if not (self._node and VITE.exists()):
            raise checks.StartupError("The front end's packages are not installed: start with `make dev`.")
        checks.check_address(self._vite.host, self._vite.port)
        return super().run()

    def _announce(self, first: dict[str, str], seconds: float) -> None:
        where = ["--host", self._vite.host, "--port", str(self._vite.port), "--strictPort"]
        vite = self._child("vite", [self._node, VITE, paths.ROOT / "frontend", *where, "--logLevel", "warn"])
        self._until(vite, self._vite_listens)
        super()._announce(first, seconds)
        console.print_line(f"the API, the admin and the command line: {self.address.url}")

    def _vite_listens(self) -> bool:
        try:
            with socket.create_connection((self._vite.probe, self._vite.port), timeout=1):
                return True
        except OSError:
            return False

    def _serve(self) -> None:
        seen = scan_source(paths.ROOT)
        while not self.ending.wait(POLL_SECONDS):
            now = scan_source(paths.ROOT)
            if files := list_changed(seen, now):
                seen = now
                self._reload(files)
        if running_tasks.list_running(self.data):
            console.print_line("stopping training")
            stop_training(self.data)

    def _reload(self, files: list[str]) -> None:
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        console.print_line(f"{Path(files[0]).relative_to(paths.ROOT)}{more} changed: starting again")
        try:
            self._migrate()
        except ChildStartError as failure:
            console.print_line(str(failure), fault=True)
        parts = [child for child in self.children if child.name not in {"broker", "vite"}]
        old = [child.process for child in parts if child.process]
        for child in parts:
            child.restart()
        if not wait_until_gone(old, GRACE_SECONDS):
            for process in old:
                process.signal(signal.SIGKILL)
