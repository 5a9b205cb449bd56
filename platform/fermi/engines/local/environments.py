"""Dev environments on this machine (`fermi.engines.environments`). Files are the only memory.

A run that needs no preparation (JupyterLab as it is installed here) starts when it is dialled: an environment that no
user has opened costs no memory. A run with packages, a script, secrets or an editor starts at once, so that the user
who started it sees whether that succeeds.

Where the connection says `containers`, a run with an image is a container (see `containers`). It starts at once.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from fermi.engines import interpreter, local, logfiles
from fermi.engines.environments import (
    EnvironmentBackend,
    EnvironmentHandle,
    EnvironmentPhase,
    EnvironmentSpec,
    EnvironmentStatus,
    parse_activity,
    parse_cause,
)
from fermi.engines.local import containers
from fermi.engines.local.container_runs import ContainerRuns
from fermi.engines.local.environment_runs import EnvironmentDisk, EnvironmentRun
from fermi.engines.local.launcher import build_training_env, get_default_python
from fermi.envd import editor, protocol
from fermi.jobs import bounds
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import NO_SECRETS, Artifact, Cause, LogChunk, Problem, Rendered
from fermi.runner import files
from fermi.runner.run_names import parse_run_name
from fermi.telemetry import nvidia_smi

DIAL_SECONDS = 8.0
START_SECONDS = 30.0
POLL_SECONDS = 0.05
GRACE_SECONDS = 10.0
SOCKET_NAME, TOKEN_NAME = "keeper.sock", "keeper.token"


def connect(connection: Mapping[str, Any]) -> LocalEnvironmentBackend:
    """Return the environment backend of a connection."""
    backend = local.connect({**connection, "warm": False})
    return LocalEnvironmentBackend(backend, with_containers=connection.get("containers"))


class LocalEnvironmentBackend(EnvironmentBackend):
    """Environment backend on this machine: a process or a container per environment."""

    on_demand = True
    hands_over = True

    def __init__(self, backend: local.LocalBackend, *, with_containers: bool | None = None) -> None:
        """Store the options. `with_containers`: False where an image is refused; None where environments are processes,
        whatever their image."""
        self.backend = backend
        self.data_dir = backend.data_dir
        self.with_containers = with_containers
        self.containers = ContainerRuns(self.data_dir)

    def problems(self, spec: EnvironmentSpec) -> list[Problem]:
        if spec.kind == "jupyter" and interpreter.find_missing_distributions(get_default_python(), ["jupyterlab"]):
            return [Problem("kind", "JUPYTERLAB_MISSING", {"python": get_default_python()})]
        if spec.kind == "vscode" and not editor.find_on_path(None) and not editor.find_installed(str(self._tools)):
            try:
                editor.choose_version()
            except editor.EditorMissingError as missing:
                return [Problem("kind", "VSCODE_MISSING", {"why": missing.why})]
        return []

    def gpus(self, host: str) -> int | None:
        return len([row for row in nvidia_smi.run_query(("uuid",)) or [] if "uuid" in row])

    def render(self, spec: EnvironmentSpec) -> Rendered:
        disk = self._disk(spec.id)
        run = disk.run(spec.run)
        if spec.image and self.with_containers is False:
            raise BackendError("HOST_WITHOUT_CONTAINERS", permanent=True, host=socket.gethostname())
        if spec.image and self.with_containers:
            made = containers.render_container(spec, _build_size_variables(spec), GRACE_SECONDS, self.backend.bounds)
            return Rendered(spec.run_name, "local", (Artifact("keeper", "keeper", made),))
        cache = self.data_dir / "packages" / spec.project
        content = {
            "name": spec.run_name, "node_rank": 0, "project": spec.project, "kind": spec.kind,
            "workspace": str(disk.workspace), "home": str(disk.home), "service": str(run.folder / "service"),
            "cache": str(cache), "tools": str(self._tools), "python": self.backend.python, "lab": get_default_python(),
            "own": str(disk.own),
            "packages": list(spec.packages), "env": self._env(spec, disk), "start_script": spec.start_script,
            "ports": [{"name": port.name, "port": port.port} for port in spec.ports],
            "lazy": not (spec.packages or spec.start_script or spec.secret_env or spec.kind == "vscode"),
            "grace_seconds": GRACE_SECONDS, **bounds.build_environment_bounds(self.backend.bounds, spec.disk_gb),
            **self._confined(disk, run, cache),
        }  # fmt: skip
        return Rendered(spec.run_name, "local", (Artifact("keeper", "keeper", content),))

    def _env(self, spec: EnvironmentSpec, disk: EnvironmentDisk) -> dict[str, str]:
        """Return the variables. Sizes are information only except for threads and GPUs: without a control group of its
        own, no process is limited."""
        gpus = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, spec.gpus))} if spec.gpus or not self._all_gpus(spec) else {}
        return {"HOME": str(disk.home), **gpus, **_build_size_variables(spec)}

    @staticmethod
    def _all_gpus(spec: EnvironmentSpec) -> bool:
        """Return whether it has all GPUs of the machine: it requires GPUs and was given no indices."""
        return bool(spec.gpu_count) and not spec.emulated

    def _confined(self, disk: EnvironmentDisk, run: EnvironmentRun, cache: Path) -> dict[str, Any]:
        """Return the sandboxes: its own disk and run, and nothing else of the platform's; packages are its project's,
        and read only."""
        isolation = self.backend.isolation
        place = replace(self.backend.place, workspace=disk.workspace)
        own, service = [disk.workspace, disk.home], run.folder / "service"
        readable = [self.data_dir / "datasets"]
        orders = {
            "confine": isolation.order(
                place, own=[*own, service], readable=[*readable, cache, self._tools], logs=service, home=disk.home
            ),
            "preparing": isolation.order(
                place, own=[*own, service, cache], readable=readable, logs=service, home=disk.home
            ),
        }
        return {name: order for name, order in orders.items() if order}

    def start(self, rendered: Rendered, secrets: Mapping[str, str] = NO_SECRETS) -> None:
        """Write the spec and start the environment daemon, unless it starts on demand. Secrets go to it through its
        standard input: they are never in a file."""
        content = rendered.artifacts[0].content
        environment, number = parse_run_name(rendered.name)
        disk = self._disk(environment)
        run = disk.run(int(number))
        if run.is_stopped:
            return
        try:
            disk.make(content["project"])
            (self.data_dir / "datasets").mkdir(exist_ok=True)  # Landlock allows only folders that exist
            run.folder.mkdir(exist_ok=True)
            run.folder.chmod(0o711)
            if not run.spec.exists():
                files.write_json_atomically(str(run.spec), content, 0o600)
        except OSError as error:
            raise BackendError("DISK_UNUSABLE", path=error.filename or str(run.folder), why=error.strerror) from error
        if "container" in content:
            self.containers.start(self.containers.box(disk, run), content, secrets)
        elif not content["lazy"] and run.read_state().state == "absent":
            self._begin(run, secrets)

    def _begin(self, run: EnvironmentRun, secrets: Mapping[str, str] = NO_SECRETS) -> None:
        """Start an environment daemon; return when it listens, or another does. Raise BackendError."""
        try:
            done = subprocess.run(
                [sys.executable, "-m", "fermi.envd", str(run.spec), "-"], input=json.dumps(dict(secrets)),
                env=build_training_env(), cwd="/", start_new_session=True, capture_output=True, text=True,
                timeout=START_SECONDS, check=False,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            raise BackendError("KEEPER_UNSTARTABLE", why=str(error)) from error
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [str(done.returncode)])[-1]
            raise BackendError("KEEPER_UNSTARTABLE", why=last)

    def observe(self, handles: Iterable[EnvironmentHandle]) -> dict[str, EnvironmentStatus]:
        return {handle.name: self._observe(self._run(handle)) for handle in handles}

    def _observe(self, run: EnvironmentRun) -> EnvironmentStatus:
        spec = files.read_json(str(run.spec))
        if spec is None:
            return EnvironmentStatus(EnvironmentPhase.ABSENT, left=False if run.is_stopped else None)
        if "container" in spec:
            return self.containers.read_status(self._box(run), spec)
        seen, told = run.read_state(), run.read_daemon_status()
        if seen.state == "exited":
            return EnvironmentStatus(EnvironmentPhase.ENDED, left=False, cause=parse_cause(told.get("cause")))
        may_begin = spec["lazy"] and not run.is_stopped
        if seen.state == "lost":
            strays = bool(run.strays())
            if may_begin:
                return EnvironmentStatus(EnvironmentPhase.RUNNING, left=True, facts=_read_facts(self.backend.python))
            return EnvironmentStatus(EnvironmentPhase.ENDED, left=strays, cause=Cause("KEEPER_LOST"))
        facts = _read_facts(self.backend.python)
        if seen.state == "absent":
            if seen.left:
                return EnvironmentStatus(EnvironmentPhase.STARTING, left=True)
            return EnvironmentStatus(
                EnvironmentPhase.RUNNING if may_begin else EnvironmentPhase.ABSENT, left=True, facts=facts
            )
        phase = EnvironmentPhase.RUNNING if seen.state == "running" else EnvironmentPhase.STARTING
        return EnvironmentStatus(
            phase,
            left=True,
            doing=parse_cause(told.get("doing")),
            facts=facts,
            activity=parse_activity(told.get("activity")),
        )

    def stop(self, handle: EnvironmentHandle, grace_seconds: float) -> None:
        run = self._run(handle)
        try:
            if _has_container(run):
                self.containers.request_end(self._box(run), grace_seconds)
            else:
                run.request_end(grace_seconds)
        except OSError as error:
            raise BackendError("DISK_UNUSABLE", path=error.filename or str(run.folder), why=error.strerror) from error

    def delete(self, environment: str) -> bool:
        disk = self._disk(environment)
        boxed = [run for run in disk.runs() if _has_container(run)]
        if any(self._observe(run).left is not False for run in boxed):
            return False
        for run in disk.runs():
            if run not in boxed and ((seen := run.read_state()).left or (seen.state == "lost" and run.strays())):
                return False
        if boxed:
            self.containers.remove_all(environment)
        return disk.remove()

    def logs(self, handle: EnvironmentHandle, cursor: int, limit: int = 1 << 20) -> LogChunk:
        run = self._run(handle)
        return logfiles.read_chunk(
            self._box(run).inside / "keeper.log" if _has_container(run) else run.log, cursor, limit
        )

    def dial(self, handle: EnvironmentHandle) -> socket.socket:
        """Return a stream to the environment daemon. A run that starts on demand is started; of several calls at once,
        one does. A run that was not started here yet, because the platform itself has just started, is waited for; run
        0 belongs to no environment. Raise BackendError."""
        run = self._run(handle)
        limit = time.monotonic() + DIAL_SECONDS
        while (spec := files.read_json(str(run.spec))) is None and handle.run and not run.is_stopped:
            if time.monotonic() > limit:
                break
            time.sleep(POLL_SECONDS)
        begun = False
        boxed = self._box(run) if spec and "container" in spec else None
        while spec is not None:
            if stream := self.containers.connect_envd(boxed) if boxed else _connect_envd(run):
                return stream
            if not begun and spec["lazy"] and not run.is_stopped:
                if run.read_state().state == "lost":
                    run.clear()
                self._begin(run)
                begun = True
            if not boxed and (said := run.read_daemon_status()).get("state") == "exited":
                if cause := parse_cause(said.get("cause")):
                    raise BackendError(cause.code, **cause.params)
                break
            if time.monotonic() > limit or run.is_stopped:
                break
            time.sleep(POLL_SECONDS)
        raise BackendError("ENVIRONMENT_AWAY", environment=handle.environment)

    @property
    def _tools(self) -> Path:
        return self.data_dir / "tools"

    def _disk(self, environment: str) -> EnvironmentDisk:
        return EnvironmentDisk.from_environment(self.data_dir, environment)

    def _run(self, handle: EnvironmentHandle) -> EnvironmentRun:
        return self._disk(handle.environment).run(handle.run)

    def _box(self, run: EnvironmentRun) -> containers.ContainerSpec:
        return self.containers.box(EnvironmentDisk(run.folder.parents[1]), run)


def _has_container(run: EnvironmentRun) -> bool:
    return "container" in (files.read_json(str(run.spec)) or {})


def _build_size_variables(spec: EnvironmentSpec) -> dict[str, str]:
    """Return the variables of all of its processes, in a container or not."""
    threads = str(spec.cpu_cores)
    own = {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, "FERMI_ENVIRONMENT": spec.id}
    return {**own, **spec.env}


def _connect_envd(run: EnvironmentRun) -> socket.socket | None:
    """Return a stream to an environment daemon; None where it does not answer. A path may be longer than a socket's
    name can be; the folder's descriptor is short."""
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        token = (run.folder / TOKEN_NAME).read_text("ascii")
        folder = os.open(run.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            stream.connect(f"/proc/self/fd/{folder}/{SOCKET_NAME}")
        finally:
            os.close(folder)
        stream.sendall(protocol.build_greeting(token))
    except OSError:
        stream.close()
        return None
    return stream


@cache
def _read_facts(python: str) -> dict[str, Any]:
    """Return the facts of this machine. Versions are read where the platform's interpreter is the training stack's,
    too."""
    versions: dict[str, str] = {}
    if python == sys.executable:
        versions["python"] = sys.version.split()[0]
        with suppress(metadata.PackageNotFoundError):
            versions["torch"] = metadata.version("torch")
    found: dict[str, Any] = {"host": socket.gethostname()[:200], "ip": "127.0.0.1"}
    return {**found, **({"versions": versions} if versions else {})}
