"""Lives of containers, one for each run. The files of a run and the engine are the only memory:

    no ended.json, no container      it has not started: `start` pulls the image, then runs the container
    its lock is held                 its environment daemon lives, and its status file has its state; no engine is asked
    its lock is free                 the engine reports the container's state, by its name
    ended.json                       it is over, and nothing is left of it: written once, when that was found

Starting takes as long as an image takes to arrive, so a thread does it. Should its process die, the next one finds no
container under the run's name and starts again, or finds one, and has nothing to do.
"""

import fcntl
import json
import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fermi.engines import logfiles
from fermi.engines.environments import EnvironmentPhase, EnvironmentStatus, parse_activity, parse_cause
from fermi.engines.local import container_engines, containers, images
from fermi.engines.local.container_engines import ContainerEngine
from fermi.engines.local.containers import ContainerSpec
from fermi.engines.local.environment_runs import EnvironmentDisk, EnvironmentRun
from fermi.envd import protocol
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Cause
from fermi.runner import files, terminate
from fermi.runner.run_names import parse_run_name
from fermi.schema import sanitize

log = logging.getLogger(__name__)

RETRY_SECONDS = 15.0
SETTLE_SECONDS = 2.0
POLL_SECONDS = 0.2
LOG_TAIL_LINES = 5
MAX_STATUS_BYTES = 1 << 20
MAX_TOKEN_BYTES = 200
ENDED_FILE = "ended.json"
NO_ENGINE = Cause("CONTAINERS_AWAY", {"engine": "podman, docker", "why": "–"})


@dataclass(slots=True)
class ContainerStart:
    """Start of a container. `pull_line`: the newest line of a running pull. `waits`: why it is tried again in a
    while."""

    thread: threading.Thread | None = None
    pull_line: str | None = None
    waits: Cause | None = None


@dataclass(slots=True)
class ContainerRuns:
    """Containers of one data directory, in one process."""

    data_dir: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _beginnings: dict[str, ContainerStart] = field(default_factory=dict)
    _over: dict[str, Cause | None] = field(default_factory=dict)

    def engine(self) -> ContainerEngine | None:
        """Return the container engine; None: there is none."""
        return container_engines.find_container_engine(self.data_dir / "containers")

    def box(self, disk: EnvironmentDisk, run: EnvironmentRun) -> ContainerSpec:
        """Return the names and folders of a run's container."""
        return ContainerSpec(run.name, disk.folder.name, self.data_dir, run.folder, disk.workspace, disk.home)

    # start

    def start(self, box: ContainerSpec, content: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
        """Start a thread that starts the container, and return at once. Raise BackendError where there is no engine."""
        engine = self.engine()
        if engine is None:
            raise BackendError("HOST_WITHOUT_CONTAINERS", host=socket.gethostname())
        with self._lock:
            if self._lives(box) or self._ended(box):
                return
            beginning = self._beginnings[box.name] = ContainerStart()
            beginning.thread = threading.Thread(
                target=self._live, args=(engine, box, content, secrets, beginning), daemon=True, name=box.name
            )
            beginning.thread.start()

    def _lives(self, box: ContainerSpec) -> ContainerStart | None:
        beginning = self._beginnings.get(box.name)
        return beginning if beginning and beginning.thread and beginning.thread.is_alive() else None

    def _live(
        self,
        engine: ContainerEngine,
        box: ContainerSpec,
        content: Mapping[str, Any],
        secrets: Mapping[str, str],
        beginning: ContainerStart,
    ) -> None:
        while not _is_stopped(box):
            try:
                self._once(engine, box, content, secrets, beginning)
                return
            except BackendError as error:
                beginning.waits = Cause(error.code, error.params)
                if error.permanent:
                    self._close(box, beginning.waits)
                    return
            except OSError as error:
                why = {"path": error.filename or str(box.folder), "why": error.strerror or str(error)}
                beginning.waits = Cause("DISK_UNUSABLE", why)
            except Exception as error:
                log.exception("%s does not begin", box.name)
                self._close(box, Cause("KEEPER_UNSTARTABLE", {"why": str(error)}))
                return
            limit = time.monotonic() + RETRY_SECONDS
            while time.monotonic() < limit and not _is_stopped(box):
                time.sleep(POLL_SECONDS)

    def _once(
        self,
        engine: ContainerEngine,
        box: ContainerSpec,
        content: Mapping[str, Any],
        secrets: Mapping[str, str],
        beginning: ContainerStart,
    ) -> None:
        """Try once to start the container. Raise BackendError and OSError."""
        there, wanted = self._ask(engine, box), content["container"]
        if there and not there.ours:
            raise BackendError("CONTAINER_NAME_TAKEN", permanent=True, name=box.name, engine=engine.name)
        if there and not there.begun:  # of an agent that died: the engine's command may still be running
            time.sleep(SETTLE_SECONDS)
            there = self._ask(engine, box)
        if there and there.begun:
            return
        if there:
            engine.remove(box.name)
        if not images.has_image(engine, wanted["image"]):
            beginning.pull_line = ""
            try:
                if not images.pull_image(
                    engine, wanted["image"], lambda line: _set_pull_line(beginning, line), lambda: _is_stopped(box)
                ):
                    return
            finally:
                beginning.pull_line = None
        beginning.waits = None
        _write_inside_files(box, content["keeper"], secrets)
        if _is_stopped(box):
            return
        done = engine.run_command(
            *containers.build_run_command(engine, box, wanted), seconds=container_engines.RUN_TIMEOUT_SECONDS
        )
        if done.code:
            refusal = containers.build_run_error(engine, box, wanted["image"], done)
            if refusal.code != "CONTAINER_NAME_TAKEN" and (there := self._ask(engine, box)) and there.ours:
                engine.remove(box.name)
            raise refusal

    # observe

    def read_status(self, box: ContainerSpec, content: Mapping[str, Any]) -> EnvironmentStatus:
        """Return the status of a run. Where its container is over, write that down, once, and remove it."""
        if over := self._ended(box):
            return EnvironmentStatus(EnvironmentPhase.ENDED, False, over[0])
        if beginning := self._lives(box):
            return _build_starting_status(beginning, content["container"]["image"])
        told, stopped = _read_status(box), _is_stopped(box)
        if _is_lock_held(box):
            return _build_running_status(told)
        engine = self.engine()
        if engine is None:
            return EnvironmentStatus(EnvironmentPhase.UNKNOWN, waiting=NO_ENGINE)
        try:
            there = self._ask(engine, box)
            if there and there.ours and there.runs:
                return EnvironmentStatus(EnvironmentPhase.STARTING, True)
            began = bool(told) or bool(there and there.ours and there.begun)
            if not began and not stopped:
                return EnvironmentStatus(EnvironmentPhase.ABSENT, True)
            cause = self._cause(engine, box, content, told, there)
            if there and there.ours:
                engine.remove(box.name)
        except BackendError as error:
            return EnvironmentStatus(EnvironmentPhase.UNKNOWN, waiting=Cause(error.code, error.params))
        cause = None if stopped else cause
        self._close(box, cause)
        return EnvironmentStatus(EnvironmentPhase.ENDED if began else EnvironmentPhase.ABSENT, False, cause)

    def _cause(
        self, engine: ContainerEngine, box: ContainerSpec, content: Mapping[str, Any], status: Mapping[str, Any],
        state: containers.ContainerState | None,
    ) -> Cause | None:  # fmt: skip
        if status.get("state") == "exited":
            return parse_cause(status.get("cause"))
        if state is None or not state.ours:
            return Cause("KEEPER_LOST", {})
        done = engine.run_command("logs", f"--tail={LOG_TAIL_LINES}", box.name)
        printed = [line for line in (done.out + done.err).splitlines() if line.strip()]
        return containers.find_end_cause(state, content["container"], printed, has_started=bool(status))

    @staticmethod
    def _ask(engine: ContainerEngine, box: ContainerSpec) -> containers.ContainerState | None:
        """Return the container's state; None: there is no container of that name. Raise BackendError."""
        done = engine.run_command("container", "inspect", "--format", containers.INSPECT_FORMAT, box.name)
        if done.code:
            if "no such container" in done.err.lower():
                return None
            raise BackendError("CONTAINERS_AWAY", engine=engine.name, why=done.why)
        try:
            return containers.parse_state(done.out, box)
        except (ValueError, TypeError, AttributeError) as error:
            raise BackendError("CONTAINERS_AWAY", engine=engine.name, why=str(error)) from error

    def _ended(self, box: ContainerSpec) -> tuple[Cause | None] | None:
        if box.name in self._over:
            return (self._over[box.name],)
        written = files.read_json(str(box.folder / ENDED_FILE))
        return (parse_cause(written.get("cause")),) if written else None

    def _close(self, box: ContainerSpec, cause: Cause | None) -> None:
        """Write down that a run is over and delete its secrets. Where the disk takes no file, only this process knows
        it."""
        self._over[box.name] = cause
        for secret in (box.inside / files.SECRETS_NAME, box.folder / f"{files.SECRETS_NAME}.new"):
            with suppress(OSError):
                secret.unlink(missing_ok=True)
        with suppress(OSError):
            about = {"over": True, "cause": cause and cause.to_json()}
            files.write_json_atomically(str(box.folder / ENDED_FILE), about, 0o600)

    # stop

    def request_end(self, box: ContainerSpec, grace_seconds: float) -> None:
        """Write a request to end, which the environment daemon reads. A container that is late is removed with all its
        processes. Raise OSError and BackendError."""
        box.folder.mkdir(parents=True, exist_ok=True)
        terminate.end_runners(box.folder, [], grace_seconds)
        stop = files.read_json(str(box.folder / "stop.json")) or {}
        if self._ended(box) or time.time() < float(stop.get("kill_at") or 0) + terminate.RUNNER_OVERDUE_SECONDS:
            return
        if (engine := self.engine()) and (there := self._ask(engine, box)) and there.ours:
            engine.remove(box.name)

    def remove_all(self, environment: str) -> None:
        """Remove all containers with our labels of an environment, whichever process made them. Raise BackendError."""
        if engine := self.engine():
            ours = {containers.ENVIRONMENT_LABEL: environment, containers.DATA_LABEL: str(self.data_dir)}
            filters = [f"--filter=label={name}={value}" for name, value in ours.items()]
            for one in engine.run_command("ps", "--all", "--quiet", "--no-trunc", *filters).out.split():
                engine.remove(one)
        for known in (self._over, self._beginnings):
            for name in [name for name in known if parse_run_name(name)[0] == environment]:
                del known[name]

    # connections

    def connect_envd(self, box: ContainerSpec) -> socket.socket | None:
        """Return a stream to the environment daemon; None where it does not answer. The socket is opened before it is
        connected to: a link in its place would lead to one of the host's own."""
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with logfiles.open_regular_file(box.inside / "keeper.token") as file:
                token = file.read(MAX_TOKEN_BYTES).decode("ascii")
            there = os.open(box.inside / "keeper.sock", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if not stat.S_ISSOCK(os.fstat(there).st_mode):
                    raise OSError("no socket")
                stream.connect(f"/proc/self/fd/{there}")
            finally:
                os.close(there)
            stream.sendall(protocol.build_greeting(token))
        except (OSError, ValueError):
            stream.close()
            return None
        return stream


def _write_inside_files(box: ContainerSpec, keeper: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
    """Write the container's files where nothing of the container can write, then move them: a link that lies there is
    replaced, not followed."""
    for folder in (box.inside, box.workspace, box.home):
        folder.mkdir(mode=0o700, exist_ok=True)
    for name, what in (("keeper.json", keeper), (files.SECRETS_NAME, secrets)):
        if what:
            made = box.folder / f"{name}.new"
            files.write_json_atomically(str(made), dict(what), 0o600)
            made.replace(box.inside / name)


def _set_pull_line(beginning: ContainerStart, line: str) -> None:
    beginning.pull_line = line


def _is_stopped(box: ContainerSpec) -> bool:
    return (box.folder / "stop.json").exists()


def _is_lock_held(box: ContainerSpec) -> bool:
    """Return whether the environment daemon holds its lock: it does so until it ends, and the kernel frees it then."""
    try:
        lock = os.open(box.inside / "keeper.lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def _read_status(box: ContainerSpec) -> Mapping[str, Any]:
    """Return the status that was written in the container; empty where that is no status."""
    try:
        with logfiles.open_regular_file(box.inside / "keeper.status.json") as file:
            found = sanitize.sanitize_params(json.loads(file.read(MAX_STATUS_BYTES)))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _build_starting_status(beginning: ContainerStart, image: str) -> EnvironmentStatus:
    if beginning.pull_line is None:
        return EnvironmentStatus(EnvironmentPhase.STARTING, True, waiting=beginning.waits)
    doing = Cause("IMAGE_PULLING", {"image": image, "line": beginning.pull_line})
    return EnvironmentStatus(EnvironmentPhase.STARTING, True, waiting=beginning.waits or doing, doing=doing)


def _build_running_status(status: Mapping[str, Any]) -> EnvironmentStatus:
    return EnvironmentStatus(
        EnvironmentPhase.RUNNING if status.get("state") == "running" else EnvironmentPhase.STARTING,
        left=True,
        doing=parse_cause(status.get("doing")),
        facts={"host": socket.gethostname()[:200], "ip": "127.0.0.1"},
        activity=parse_activity(status.get("activity")),
    )
