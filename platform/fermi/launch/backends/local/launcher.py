"""Starts node runners: through a process that already stands by with the training stack imported, or a fresh one."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import fermi
from fermi.launch.errors import BackendError
from fermi.launch.spec import NO_SECRETS

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


def training_env() -> dict[str, str]:
    """What training processes inherit of our environment: never the platform's own settings and secrets."""
    inherited = {
        name: value for name, value in os.environ.items() if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)
    }
    toolkit = str(Path(fermi.__file__).parents[1])
    return {**inherited, "PYTHONPATH": toolkit, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Launcher:
    """At most one process stands by, made anew after each use. It ends by itself when this process does, because it
    then reads the end of its standard input."""

    def __init__(self, python: str, *, warm: bool) -> None:
        self._python = python
        self._warm = warm
        self._lock = threading.Lock()
        self._standing_by: tuple[tuple[str, ...], subprocess.Popen[str]] | None = None
        self._busy: dict[str, subprocess.Popen[str]] = {}

    def launch(
        self, name: str, specs: Sequence[Path], preload: Sequence[str], log: Path,
        secrets: Mapping[str, str] = NO_SECRETS,
    ) -> None:  # fmt: skip
        """Returns as soon as the order is given; a second call while the first is still at it does nothing. Raises
        BackendError when the first could not do it."""
        with self._lock:
            if busy := self._busy.get(name):
                code = busy.poll()
                if code is None:
                    return
                del self._busy[name]
                if code != 0:
                    raise BackendError("LAUNCHER_FAILED", permanent=True, exitCode=code, output=_tail(log))
            process = self._take(tuple(preload)) or self._start(tuple(preload), log)
            self._busy[name] = process
            try:
                assert process.stdin is not None
                process.stdin.write(json.dumps({"specs": [str(path) for path in specs], "secrets": {**secrets}}) + "\n")
                process.stdin.close()
            except BrokenPipeError:
                pass  # its exit code tells at the next call
            if self._warm:
                self._stand_by(tuple(preload), after=process)

    def is_busy(self, name: str) -> bool:
        """Whether it is still at what `launch` was told."""
        with self._lock:
            busy = self._busy.get(name)
            return busy is not None and busy.poll() is None

    def stand_by(self, preload: Sequence[str]) -> None:
        """Makes the next launch that imports `preload` a warm one. What stood by for something else, or died, goes."""
        with self._lock:
            if self._standing_by:
                if self._standing_by[0] == tuple(preload) and self._standing_by[1].poll() is None:
                    return
                self._dismiss()
            if self._warm:
                self._standing_by = (tuple(preload), self._start(tuple(preload), None))

    def close(self) -> None:
        with self._lock:
            self._dismiss()

    def _dismiss(self) -> None:
        """Nothing was asked of it yet, so nothing is lost with it."""
        if self._standing_by:
            process, self._standing_by = self._standing_by[1], None
            process.kill()
            process.communicate()

    def _take(self, preload: tuple[str, ...]) -> subprocess.Popen[str] | None:
        """The one standing by, if it lives and has imported what is wanted (or is about to)."""
        if not self._standing_by or self._standing_by[0] != preload or self._standing_by[1].poll() is not None:
            return None
        process, self._standing_by = self._standing_by[1], None
        return process

    def _stand_by(self, preload: tuple[str, ...], after: subprocess.Popen[str]) -> None:
        """Imports take seconds of processor time, so the next one starts when the ranks of this one have."""

        def wait_and_start() -> None:
            after.wait()
            self.stand_by(preload)

        threading.Thread(target=wait_and_start, name="stand-by", daemon=True).start()

    def _start(self, preload: tuple[str, ...], log: Path | None) -> subprocess.Popen[str]:
        with open(log or os.devnull, "ab") as errors:
            return subprocess.Popen(
                [self._python, "-m", "fermi.runner.template", "--preload", ",".join(preload)],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors, text=True,
                env=training_env(), cwd="/", start_new_session=True,
            )  # fmt: skip


def default_python() -> str:
    return sys.executable


def _tail(log: Path, size: int = 2000) -> str:
    try:
        return log.read_bytes()[-size:].decode(errors="replace").strip()
    except FileNotFoundError:
        return ""
