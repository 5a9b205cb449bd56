"""Start node runners: through a process that stands by with the training stack imported, or a new one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import fermi
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import NO_SECRETS

_INHERITED = {
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TZ",
    "TMPDIR",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
}
_INHERITED_PREFIXES = ("LC_", "XDG_", "CUDA_", "NVIDIA_", "NCCL_", "SSL_CERT_")


def build_training_env() -> dict[str, str]:
    """Return the variables that training processes inherit of our environment: never the platform's own settings and
    secrets."""
    inherited = {
        name: value for name, value in os.environ.items() if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)
    }
    toolkit = str(Path(fermi.__file__).parents[1])
    return {**inherited, "PYTHONPATH": toolkit, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Launcher:
    """Starts node runners. At most one process stands by: the one of the last launch, which stays. It ends by itself
    when this process does, because it then reads the end of its standard input."""

    def __init__(self, python: str, *, warm: bool) -> None:
        self._python = python
        self._warm = warm
        self._lock = threading.Lock()
        self._standing_by: _ForkServer | None = None
        self._leaving: list[_ForkServer] = []
        self._orders: dict[str, _LaunchOrder] = {}

    def launch(
        self, name: str, specs: Sequence[Path], preload: Sequence[str], log: Path,
        secrets: Mapping[str, str] = NO_SECRETS,
    ) -> None:  # fmt: skip
        """Start runners and return as soon as the order is sent; a second call while the first is being carried out
        does nothing. Raise BackendError when the first call failed."""
        with self._lock:
            if order := self._orders.get(name):
                code = order.outcome()
                if code is None:
                    return
                del self._orders[name]
                if code != 0:
                    raise BackendError("LAUNCHER_FAILED", permanent=True, exitCode=code, output=_read_tail(log))
            self._orders = {other: order for other, order in self._orders.items() if order.outcome() != 0}
            template = self._ready(tuple(preload)) or _ForkServer(self._python, tuple(preload), log, specs)
            self._orders[name] = template.order(specs, preload, log, secrets)
            if template is self._standing_by:
                return
            if self._warm and preload:
                self._dismiss()
                self._standing_by = template
            else:
                self._leave(template)

    def is_busy(self, name: str) -> bool:
        """Return whether an order is still being carried out."""
        with self._lock:
            order = self._orders.get(name)
            return order is not None and order.outcome() is None

    def stand_by(self, preload: Sequence[str]) -> None:
        """Make the next launch that imports `preload` a warm one. A process that stood by for something else, or died,
        is dismissed."""
        with self._lock:
            if self._warm and not self._ready(tuple(preload)):
                self._dismiss()
                self._standing_by = _ForkServer(self._python, tuple(preload), None)

    def close(self) -> None:
        """Dismiss the process that stands by."""
        with self._lock:
            self._dismiss()

    def _ready(self, modules: tuple[str, ...]) -> _ForkServer | None:
        """Return the process that stands by, if it lives and has imported modules of the same packages (or is about
        to): those that it lacks are imported for each order."""
        standing_by = self._standing_by
        is_same = standing_by and _list_packages(standing_by.modules) == _list_packages(modules)
        return standing_by if standing_by and is_same and standing_by.is_running() else None

    def _dismiss(self) -> None:
        if self._standing_by:
            self._leave(self._standing_by)
            self._standing_by = None

    def _leave(self, template: _ForkServer) -> None:
        template.finish()
        self._leaving = [one for one in (*self._leaving, template) if one.is_running()]


class _ForkServer:
    """Process of `fermi.runner.fork_server` that has imported `modules`, or is about to. `specs`: those of its first
    order."""

    def __init__(self, python: str, modules: tuple[str, ...], log: Path | None, specs: Sequence[Path] = ()) -> None:
        self.modules = modules
        with open(log or os.devnull, "ab") as errors:
            self._process = subprocess.Popen(
                [python, "-u", "-m", "fermi.runner.fork_server", "--preload", ",".join(modules),
                 *(map(str, specs) if modules else ())],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                env=build_training_env(), cwd="/", start_new_session=True,
            )  # fmt: skip
        assert self._process.stdin
        assert self._process.stdout
        self._orders, self._answers = self._process.stdin, self._process.stdout
        os.set_blocking(self._answers.fileno(), False)
        self._given = 0
        self._said = b""

    def order(
        self, specs: Sequence[Path], preload: Sequence[str], log: Path, secrets: Mapping[str, str]
    ) -> _LaunchOrder:
        """Send an order to start runners; return it."""
        said = {"specs": [*map(str, specs)], "preload": [*preload], "log": str(log), "secrets": {**secrets}}
        with suppress(BrokenPipeError):  # the outcome shows it
            self._orders.write(json.dumps(said).encode() + b"\n")
            self._orders.flush()
        self._given += 1
        return _LaunchOrder(self, self._given - 1)

    def outcome(self, order: int) -> int | None:
        """Return the exit code of an order, by its number from 0; None while it is being carried out."""
        ended = self._process.poll()  # before reading: all answers were written before the end
        self._listen()
        codes = self._said.splitlines()
        if order < len(codes):
            return int(codes[order])
        return None if ended is None else ended or 1

    def _listen(self) -> None:
        if not self._answers.closed:
            with suppress(BlockingIOError):
                while said := os.read(self._answers.fileno(), 1 << 12):
                    self._said += said
                self._answers.close()

    def is_running(self) -> bool:
        """Return whether the process lives."""
        return self._process.poll() is None

    def finish(self) -> None:
        """Let the process carry out its orders and then end; one without orders is killed at once."""
        if not self._given:
            self._process.kill()
            self._process.wait()
        with suppress(BrokenPipeError):
            self._orders.close()


@dataclass(frozen=True)
class _LaunchOrder:
    """Order to a process that stands by."""

    template: _ForkServer
    number: int

    def outcome(self) -> int | None:
        """Return its exit code; None while it is being carried out."""
        return self.template.outcome(self.number)


def get_default_python() -> str:
    """Return the interpreter of this process."""
    return sys.executable


def _list_packages(modules: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def _read_tail(log: Path, size: int = 2000) -> str:
    try:
        return log.read_bytes()[-size:].decode(errors="replace").strip()
    except FileNotFoundError:
        return ""
