"""Managed environments on this host: the engine `local` does here what it does on the platform's own machine,
controlled by heartbeats.

    wanted                exists                step
    a run                 nothing               fetch it, start it
    a run                 an older one          end that first
    a run, stop           any state             end it; a run that has not started cannot start any more
    removed               any state             end it, then remove the environment's disk
    nothing               a run                 end it (it was fenced); once its log is shipped, remove its record

<state>/hosted/told/<run>.json    what was started here, for the next agent; without secrets
"""

import json
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fermi.agent.server import WorkerApi
from fermi.client import FermiError, ForbiddenError, NotFoundError
from fermi.engines.environments import (
    EnvironmentBackend,
    EnvironmentHandle,
    EnvironmentPhase,
    EnvironmentSpec,
    EnvironmentStatus,
)
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Cause
from fermi.planning import plugins
from fermi.runner import files
from fermi.schema import serialization

FENCED_GRACE_SECONDS = 3.0
CHUNK_BYTES = 1 << 19


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A started run. `worker`: its orders come with this worker's heartbeats."""

    name: str
    environment: str
    run: int
    worker: str

    @property
    def handle(self) -> EnvironmentHandle:
        """The engine's handle of the run."""
        return EnvironmentHandle(self.environment, self.run)


class EnvironmentRunner:
    """Starts and ends runs of environments. `step` belongs to one thread; the rest may be called from any.
    `connection`: of the engine `local` here."""

    def __init__(
        self,
        connection: Mapping[str, Any],
        server: WorkerApi,
        token: Callable[[str], str],
        changed: Callable[[], None],
        say: Callable[[str, str, str], None],
    ) -> None:
        self.news = threading.Event()
        self._connection, self._folder = connection, Path(connection["data_dir"])
        self._server, self._token, self._changed, self._say = server, token, changed, say
        self._told: dict[str, Mapping[str, Any]] = {}  # by worker; one that is missing was not heard yet
        self._begun = _load_started(self._folder / "told")
        self._seen: dict[str, EnvironmentStatus] = {}
        self._refused: dict[str, EnvironmentStatus] = {}
        self._gone: set[str] = set()
        self._shipped: dict[str, int] = {}
        self._complete: set[str] = set()  # their logs are shipped, and they are not wanted any more
        self._engine: EnvironmentBackend | None = None

    def learn(self, worker: str, report: Mapping[str, Any] | None) -> None:
        """Record the answer to a heartbeat."""
        report = report or {}
        wanted = {name: report.get(name) or [] for name in ("runs", "removed")}
        if self._told.get(worker) != wanted:
            self._told[worker] = wanted
            self.news.set()

    def report(self, worker: str) -> dict[str, Any]:
        """Return the part of this worker's heartbeat."""
        told = self._told.get(worker) or {}
        runs = {
            name: serialization.dump(seen) for name, seen in self._shown().items() if self._begun_by(name) == worker
        }
        gone = [environment for environment in told.get("removed") or () if environment in self._gone]
        return {"hosted": {"runs": runs, "gone": gone}} if runs or gone else {}

    def step(self) -> bool:
        """Move each run one step towards its desired state, and return True if there is something to supervise."""
        before = self._picture()
        for worker, told in list(self._told.items()):
            self._settle(worker, told)
        self._look()
        for begun in list(self._begun.values()):
            self._ship(begun)
            if self._can_forget(begun):
                self._forget(begun)
        if self._picture() != before:
            self._changed()
        return bool(self._begun) or any(told["runs"] or told["removed"] for told in list(self._told.values()))

    # towards what is wanted

    def _settle(self, worker: str, report: Mapping[str, Any]) -> None:
        wanted = {order["name"]: order for order in report["runs"]}
        for begun in [one for one in self._begun.values() if one.worker == worker and one.name not in wanted]:
            self._end(begun, FENCED_GRACE_SECONDS)
        for order in wanted.values():
            if order["stop"]:
                begun = self._begun.get(order["name"]) or self._note(worker, order)
                self._end(begun, float(order["stop"].get("graceSeconds") or 0.0))
            elif not self._has_begun(order["name"]) and not self._is_blocking(order):
                self._begin(worker, order)
        for environment in report["removed"]:
            if environment not in self._gone and not any(self._lives(one) for one in self._of(environment)):
                self._remove(environment)
        self._gone &= {environment for each in list(self._told.values()) for environment in each["removed"]}

    def _begin(self, worker: str, order: Mapping[str, Any]) -> None:
        name = order["name"]
        try:
            body = self._server.hosted(worker, self._token(worker), name)
        except FermiError as error:
            self._say("environment", name, f"it cannot be fetched: {error.message}")
            return
        self._note(worker, order)
        try:
            engine = self._hosting()
            engine.start(engine.render(serialization.load(EnvironmentSpec, body["spec"])), body.get("secrets") or {})
        except BackendError as error:
            cause = Cause(error.code, error.params)
            waits = EnvironmentStatus(EnvironmentPhase.STARTING, True, waiting=cause)
            self._refused[name] = EnvironmentStatus(EnvironmentPhase.ENDED, False, cause) if error.permanent else waits
            self._say("environment", name, f"it does not begin: {error}")
        else:
            self._refused.pop(name, None)
            self._say("environment", name, "")

    def _end(self, begun: StartedRun, grace_seconds: float) -> None:
        self._refused.pop(begun.name, None)
        seen = self._seen.get(begun.name)
        if seen is None or seen.left is not False:
            with suppress(BackendError):
                self._hosting().stop(begun.handle, grace_seconds)

    def _remove(self, environment: str) -> None:
        with suppress(BackendError):
            if self._hosting().delete(environment):
                self._gone.add(environment)
                for begun in self._of(environment):
                    self._forget(begun)

    def _look(self) -> None:
        if not self._begun:
            return
        try:
            found = self._hosting().observe([one.handle for one in self._begun.values()])
        except BackendError as error:
            self._say("environments", "", f"they cannot be looked at: {error}")
            return
        self._say("environments", "", "")
        self._seen = dict(found)

    # what there is

    def _has_begun(self, name: str) -> bool:
        seen, refused = self._seen.get(name), self._refused.get(name)
        if refused:
            return refused.phase is EnvironmentPhase.ENDED
        return name in self._begun and (seen is None or seen.phase is not EnvironmentPhase.ABSENT)

    def _is_blocking(self, order: Mapping[str, Any]) -> bool:
        return any(self._lives(one) for one in self._of(order["environment"]) if one.name != order["name"])

    def _lives(self, begun: StartedRun) -> bool:
        seen = self._seen.get(begun.name)
        return seen is None or (seen.left is not False and seen.phase is not EnvironmentPhase.ABSENT)

    def _can_forget(self, begun: StartedRun) -> bool:
        """Return True if the run is not wanted, nothing of it lives, and its log is shipped."""
        return begun.name in self._complete and not self._lives(begun) and not self._is_wanted(begun)

    def _is_wanted(self, begun: StartedRun) -> bool:
        """Return True if the run is wanted, or may be because its worker has not had an answer yet."""
        told = self._told.get(begun.worker)
        return told is None or any(order["name"] == begun.name for order in told["runs"])

    def _of(self, environment: str) -> list[StartedRun]:
        return [one for one in self._begun.values() if one.environment == environment]

    def _begun_by(self, name: str) -> str:
        return self._begun[name].worker if name in self._begun else ""

    def _shown(self) -> dict[str, EnvironmentStatus]:
        return {**self._seen, **self._refused}

    def _picture(self) -> Any:
        """Return the part of the state whose changes are reported at once."""
        return {name: (seen.phase, seen.left) for name, seen in self._shown().items()}, set(self._gone)

    def _note(self, worker: str, order: Mapping[str, Any]) -> StartedRun:
        begun = StartedRun(order["name"], order["environment"], int(order["run"]), worker)
        if self._begun.get(begun.name) != begun:
            path = self._folder / "told" / f"{begun.name}.json"
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            about = {"environment": begun.environment, "run": begun.run, "worker": worker}
            files.write_json_atomically(str(path), about, 0o600)
            self._begun = {**self._begun, begun.name: begun}
        return begun

    def _forget(self, begun: StartedRun) -> None:
        (self._folder / "told" / f"{begun.name}.json").unlink(missing_ok=True)
        self._begun = {name: one for name, one in self._begun.items() if name != begun.name}
        self._seen.pop(begun.name, None)
        self._refused.pop(begun.name, None)
        self._shipped.pop(begun.name, None)
        self._complete.discard(begun.name)

    def _hosting(self) -> EnvironmentBackend:
        """Return the engine, which is created at first use: most hosts only train."""
        if self._engine is None:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._engine = plugins.get_environment_backend("local", dict(self._connection))
            assert self._engine is not None
        return self._engine

    # logs and streams

    def _ship(self, begun: StartedRun) -> None:
        """Send all of the log that there is now, by offset; again later if the platform is unreachable."""
        if begun.name in self._complete:
            return
        log, token = f"hosted/{begun.name}/log", self._token(begun.worker)
        ended = not self._lives(begun)
        try:
            known = self._shipped.get(begun.name)
            at = self._server.append(begun.worker, token, log, 0, b"") if known is None else known
            while (chunk := self._hosting().logs(begun.handle, at, CHUNK_BYTES)).data:
                at = self._server.append(begun.worker, token, log, chunk.cursor - len(chunk.data), chunk.data)
            self._shipped[begun.name] = at
            if ended and not self._is_wanted(begun):
                self._complete.add(begun.name)
        except (NotFoundError, ForbiddenError):
            self._complete.add(begun.name)
        except (FermiError, BackendError) as error:
            self._say("environment log", begun.name, f"it waits: {error}")

    def dial(self, run: str) -> socket.socket | None:
        """Return a stream to the run's environment daemon, or None if it does not run here. Raises BackendError and
        OSError."""
        begun = self._begun.get(run)
        return self._hosting().dial(begun.handle) if begun else None


def _load_started(folder: Path) -> dict[str, StartedRun]:
    found = {}
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        with suppress(OSError, ValueError, KeyError):
            about = json.loads(path.read_text(encoding="utf-8"))
            found[path.stem] = StartedRun(path.stem, about["environment"], int(about["run"]), about["worker"])
    return found
