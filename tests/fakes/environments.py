"""An engine that keeps environments in memory: it refuses what real ones refuse, and counts what it was asked."""

import socket
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fermi.engines.environments import (
    Activity,
    EnvironmentBackend,
    EnvironmentHandle,
    EnvironmentPhase,
    EnvironmentSpec,
    EnvironmentStatus,
)
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import NO_SECRETS, Artifact, Cause, LogChunk, Problem, Rendered
from fermi.runner.run_names import parse_run_name


@dataclass
class Kept:
    """A run: as Kubernetes and systemd have it, one that ended or was forbidden never begins again by its name."""

    phase: EnvironmentPhase
    cause: Cause | None = None
    waiting: Cause | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    activity: Activity = field(default_factory=Activity)


class Machine(EnvironmentBackend):
    """`lazily`: a run needs `come_up` before it runs, and `go_down` before it is gone. `away`: what asking raises."""

    def __init__(self, *, gpus: int | None = None, lazily: bool = False, on_demand: bool = False) -> None:
        self.on_demand = on_demand
        self.runs: dict[str, Kept] = {}
        self.disks: set[str] = set()
        self.forbidden: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.secrets: dict[str, dict[str, str]] = {}
        self.away: BackendError | None = None
        self.lazily = lazily
        self.has = gpus
        self.known_zones: set[str] | None = None
        self.fixed_disks = False

    def gpus(self, host: str) -> int | None:
        return self.has

    def resize_problems(self, spec: EnvironmentSpec) -> list[Problem]:
        return [Problem("diskGb", "FIELD_INVALID", {"detail": "it cannot grow"})] if self.fixed_disks else []

    def zones(self) -> set[str] | None:
        return self.known_zones

    def problems(self, spec: EnvironmentSpec) -> list[Problem]:
        return [Problem("image", "FIELD_INVALID", {"detail": "no such image"})] if spec.image == "missing" else []

    def render(self, spec: EnvironmentSpec) -> Rendered:
        return Rendered(spec.run_name, "memory", (Artifact("keeper", spec.run_name, {"gpus": list(spec.gpus)}),))

    def start(self, rendered: Rendered, secrets: Mapping[str, str] = NO_SECRETS) -> None:
        self._ask("start")
        environment, number = parse_run_name(rendered.name)
        if rendered.name in self.runs or rendered.name in self.forbidden:
            return
        alive = [name for name, run in self.runs.items()
                 if parse_run_name(name)[0] == environment and run.phase is not EnvironmentPhase.ENDED]  # fmt: skip
        assert not alive, f"{rendered.name} begins while {alive} are there"
        newest = max((int(parse_run_name(name)[1]) for name in self.runs if name.startswith(environment)), default=0)
        assert int(number) > newest, "a lower number is garbage"
        self.disks.add(environment)
        self.secrets[rendered.name] = dict(secrets)
        self.runs[rendered.name] = Kept(EnvironmentPhase.STARTING if self.lazily else EnvironmentPhase.RUNNING)

    def observe(self, handles: Iterable[EnvironmentHandle]) -> Mapping[str, EnvironmentStatus]:
        self._ask("observe")
        return {one.name: self._seen(one.name) for one in handles}

    def _seen(self, name: str) -> EnvironmentStatus:
        run = self.runs.get(name)
        if run is None:
            return EnvironmentStatus(EnvironmentPhase.ABSENT, left=False if name in self.forbidden else None)
        left = run.phase is not EnvironmentPhase.ENDED
        return EnvironmentStatus(run.phase, left, run.cause, run.waiting, facts=run.facts, activity=run.activity)

    def stop(self, handle: EnvironmentHandle, grace_seconds: float) -> None:
        self._ask("stop")
        self.forbidden.add(handle.name)
        if handle.name in self.runs and not self.lazily:
            self.runs[handle.name].phase = EnvironmentPhase.ENDED

    def delete(self, environment: str) -> bool:
        self._ask("delete")
        mine = [name for name in self.runs if parse_run_name(name)[0] == environment]
        if any(self.runs[name].phase is not EnvironmentPhase.ENDED for name in mine):
            return False
        for name in mine:
            del self.runs[name]
        self.disks.discard(environment)
        return True

    def logs(self, handle: EnvironmentHandle, cursor: int, limit: int = 1 << 20) -> LogChunk:
        said = "hello 你好\n".encode()
        cursor = max(0, len(said) + cursor) if cursor < 0 else cursor
        data = said[cursor : cursor + limit]
        return LogChunk(data, cursor + len(data), cursor + len(data) >= len(said))

    def dial(self, handle: EnvironmentHandle) -> socket.socket:
        raise BackendError("ENVIRONMENTS_NOT_MADE_HERE", backend="memory")

    def _ask(self, what: str) -> None:
        self.asked[what] += 1
        if self.away:
            raise self.away

    def end_run(self, environment: str, cause: Cause | None = None) -> None:
        """Its newest run is over by itself."""
        self.newest(environment).phase = EnvironmentPhase.ENDED
        self.newest(environment).cause = cause

    def come_up(self, environment: str) -> None:
        self.newest(environment).phase = EnvironmentPhase.RUNNING

    def newest(self, environment: str) -> Kept:
        mine = [name for name in self.runs if parse_run_name(name)[0] == environment]
        return self.runs[max(mine, key=lambda name: int(parse_run_name(name)[1]))]
