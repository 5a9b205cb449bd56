"""The container engine of this host (Podman or Docker): which there is, whether it can run anything, and how it is
called.

An engine that answers may still be unable to run a container: a runtime that does not know the host's control groups, a
limit that may not be raised. So Podman has to run one before it counts: of an empty folder, with a command that does
not exist. The engine must come as far as to report that (exit code 127, see podman-run(1)); an image is not needed.
Docker cannot run a folder; its daemon, which answers, runs as root most of the time.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fermi.jobs.errors import BackendError

ENGINE_NAMES = ("podman", "docker")
"""Engines in the order in which they are chosen."""
TIMEOUT_SECONDS, RUN_TIMEOUT_SECONDS = 20.0, 120.0
PROBE_TIMEOUT_SECONDS = 60.0
RETRY_SECONDS = 300.0
NOT_FOUND_EXIT_CODE = 127
MAX_OPEN_FILES = 1 << 20
MAX_LINE_CHARS = 1000
_find_lock = threading.Lock()
_engines: dict[Path, tuple[float, ContainerEngine | None]] = {}


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a command: exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def why(self) -> str:
        """Last line of what it printed, or its exit code."""
        return get_last_line(self.err) or get_last_line(self.out) or str(self.code)


@dataclass(frozen=True, slots=True)
class ContainerEngine:
    """Container engine of this host. `maps_root_to_user`: user 0 of its containers is the user who calls it.
    `remaps_users`: it maps its containers' users to others unless it is told not to. `limits`: what it can limit of a
    container, of "cpu", "memory" and "pids"."""

    name: str
    program: str
    version: str
    maps_root_to_user: bool = False
    remaps_users: bool = False
    limits: frozenset[str] = frozenset()

    @property
    def words(self) -> str:
        """Name and version, for texts."""
        return f"{self.name} {self.version}"

    def run_command(self, *words: str, seconds: float = TIMEOUT_SECONDS) -> CommandResult:
        """Run a command of the engine and return its result. Raise BackendError where the engine does not answer within
        `seconds`."""
        try:
            done = subprocess.run(
                [self.program, *words], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
                errors="replace", timeout=seconds, check=False, cwd="/", env=build_engine_env(), start_new_session=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            raise BackendError("CONTAINERS_AWAY", engine=self.name, why=str(error)) from error
        said = CommandResult(done.returncode, done.stdout, done.stderr)
        if done.returncode and is_engine_unavailable(said.err):
            raise BackendError("CONTAINERS_AWAY", engine=self.name, why=said.why)
        return said

    def remove(self, name: str) -> None:
        """Remove a container at once, whatever it does. Raise BackendError where the engine does not answer."""
        self.run_command(
            "rm", "--force", *(["--time=0"] if self.name == "podman" else []), name, seconds=RUN_TIMEOUT_SECONDS
        )

    def user(self) -> str:
        """Return the user of a container whose files the agent can read and remove: it writes to the disk as the agent
        does."""
        return "0:0" if self.maps_root_to_user else f"{os.geteuid()}:{os.getegid()}"


def build_engine_env() -> dict[str, str]:
    """Return the variables for an engine: all of ours (its own settings, proxies) except for the platform's."""
    return {name: value for name, value in os.environ.items() if not name.startswith("FERMI_")}


def is_engine_unavailable(message: str) -> bool:
    """Return whether a message of docker(1), or of podman(1) with another machine's service, says that the engine
    cannot be reached."""
    return any(words in message for words in ("Cannot connect to the Docker daemon", "Is the docker daemon running",
                                           "unable to connect to Podman", "Cannot connect to Podman"))  # fmt: skip


def get_last_line(text: str) -> str:
    """Return the last line that is not empty, cut at `MAX_LINE_CHARS`."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-MAX_LINE_CHARS:] if lines else ""


def build_ulimit_options() -> list[str]:
    """Return this process's own limits as options of Podman: its defaults are higher, and may not be allowed. Podman
    limits itself to as many processes as the kernel has numbers for. Containers of Docker have its daemon's limits."""
    found = []
    each = (("nofile", resource.RLIMIT_NOFILE, MAX_OPEN_FILES), ("nproc", resource.RLIMIT_NPROC, _read_max_pids()))
    for name, number, high in each:
        hard = resource.getrlimit(number)[1]
        most = high if hard == resource.RLIM_INFINITY else min(hard, high)
        found.append(f"--ulimit={name}={most}:{most}")
    return found


def _read_max_pids() -> int:
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
        return int(file.read())


def find_container_engine(folder: Path) -> ContainerEngine | None:
    """Return the engine of this host; None where there is none that works. Searched once in a process; where there was
    none, again after a while. `folder`: where an empty folder may be made that nothing else writes to."""
    with _find_lock:
        at, found = _engines.get(folder, (0.0, None))
        if found is None and (not at or time.monotonic() - at > RETRY_SECONDS):
            found = _find_working_engine(folder)
            _engines[folder] = time.monotonic(), found
        return found


def _find_working_engine(folder: Path) -> ContainerEngine | None:
    """Return the first engine that runs a container; where it cannot limit anything (control groups that are not
    delegated to its user), without limits."""
    for name in ENGINE_NAMES:
        if (program := shutil.which(name)) and (engine := _query_engine(name, program)):
            for candidate in dict.fromkeys((engine, replace(engine, limits=frozenset()))):
                if _can_run(candidate, folder / "empty"):
                    return candidate
    return None


def _query_engine(name: str, program: str) -> ContainerEngine | None:
    try:
        done = ContainerEngine(name, program, "").run_command(
            "info", "--format", "{{json .}}", seconds=PROBE_TIMEOUT_SECONDS
        )
        info = json.loads(done.out) if done.code == 0 else None
        if not isinstance(info, dict):
            return None
        return _parse_podman(program, info) if name == "podman" else _parse_docker(program, info)
    except (BackendError, ValueError, TypeError, AttributeError):
        return None


def _parse_podman(program: str, info: Mapping[str, Any]) -> ContainerEngine:
    host = info.get("host") or {}
    rootless = bool((host.get("security") or {}).get("rootless"))
    version = str((info.get("version") or {}).get("Version") or "")
    limits = frozenset(host.get("cgroupControllers") or ()) & {"cpu", "memory", "pids"}
    return ContainerEngine("podman", program, version, rootless, limits=limits)


def _parse_docker(program: str, info: Mapping[str, Any]) -> ContainerEngine | None:
    """Return the engine of Docker's answer. Its client answers without its daemon, too, and then says what is wrong:
    None."""
    version = str(info.get("ServerVersion") or "")
    if info.get("ServerErrors") or not version:
        return None
    known = {"cpu": "CpuCfsQuota", "memory": "MemoryLimit", "pids": "PidsLimit"}
    options = {str(option).partition(",")[0] for option in info.get("SecurityOptions") or ()}
    return ContainerEngine(
        "docker", program, version, "name=rootless" in options, "name=userns" in options,
        frozenset(name for name, field in known.items() if info.get(field)),
    )  # fmt: skip


def _can_run(engine: ContainerEngine, folder: Path) -> bool:
    if engine.name != "podman":
        return True
    words = [
        "--network=host",
        *build_ulimit_options(),
        *build_minimal_limits(engine),
        "--rootfs",
        str(folder),
        "/nothing",
    ]
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        done = engine.run_command("run", "--rm", *words, seconds=PROBE_TIMEOUT_SECONDS)
    except (BackendError, OSError):
        return False
    return done.code == NOT_FOUND_EXIT_CODE


def build_minimal_limits(engine: ContainerEngine) -> list[str]:
    """Return limits that harm nothing, to test whether limits work here."""
    each = {"cpu": "--cpus=1", "memory": "--memory=64m", "pids": "--pids-limit=64"}
    return [each[name] for name in sorted(engine.limits)]
