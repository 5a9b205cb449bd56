"""Dev environments on the hosts of worker agents. The agent does there what the backend `local` does here; this side
stores what it is to do (`hosts`)."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fermi.engines import logfiles
from fermi.engines.agent.hosts import EnvironmentRunReport, HostStore
from fermi.engines.connections import cache_by_connection
from fermi.engines.environments import (
    EnvironmentBackend,
    EnvironmentHandle,
    EnvironmentPhase,
    EnvironmentSpec,
    EnvironmentStatus,
)
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import NO_SECRETS, Artifact, Cause, LogChunk, Problem, Rendered
from fermi.schema import serialization

hosts: HostStore | None = None
LOG_FOLDER = "environments"
"""Folder of the data directory to which agents send what environment daemons and services print."""


def set_hosts(registry: HostStore) -> None:
    """Set the store of hosts for all of this process."""
    global hosts
    hosts = registry


def get_hosts() -> HostStore:
    """Return the store of hosts of this process. Raise BackendError where none was set."""
    if hosts is None:
        raise BackendError("WORKER_STORE_MISSING", permanent=True)
    return hosts


def build_log_path(data_dir: Path, handle: EnvironmentHandle) -> Path:
    """Return the file to which the log of an environment's run is written."""
    return data_dir / "logs" / LOG_FOLDER / handle.environment / f"{handle.run}.log"


@cache_by_connection
def connect(connection: dict[str, Any]) -> AgentEnvironmentBackend:
    """Return the environment backend of a connection; the same one for equal connections."""
    return AgentEnvironmentBackend(connection)


class AgentEnvironmentBackend(EnvironmentBackend):
    """Environment backend on hosts of worker agents."""

    on_demand = True

    def __init__(self, connection: Mapping[str, Any]) -> None:
        self.data_dir = Path(connection.get("data_dir") or "var").resolve()

    def problems(self, spec: EnvironmentSpec) -> list[Problem]:
        there = get_hosts().hosts(spec.project)
        if not there:
            return [Problem("host", "WORKERS_NONE", {})]
        if spec.host and spec.host not in there:
            return [Problem("host", "HOST_UNKNOWN", {"host": spec.host, "allowed": ", ".join(sorted(there))})]
        chosen = [there[spec.host]] if spec.host else list(there.values())
        found = []
        if spec.image and not any(host.containers for host in chosen):
            found.append(Problem("image", "HOST_WITHOUT_CONTAINERS", {"host": spec.host or ", ".join(sorted(there))}))
        elif spec.image:
            chosen = [host for host in chosen if host.containers]
        most = max(len(host.free) for host in chosen)
        if spec.gpu_count > most:
            params = {"host": spec.host or ", ".join(sorted(there)), "found": most, "expected": spec.gpu_count}
            found.append(Problem("gpuCount", "HOST_TOO_SMALL", params))
        return found

    def render(self, spec: EnvironmentSpec) -> Rendered:
        """Return the run as it is stored for the agent. Its paths are its host's own; what the agent makes of it there
        is not known here."""
        return Rendered(spec.run_name, "agent", (Artifact("run", spec.run_name, serialization.dump(spec)),))

    def start(self, rendered: Rendered, secrets: Mapping[str, str] = NO_SECRETS) -> None:
        """Store the run. Secrets are not part of it: the agent gets them when it fetches the run."""
        body = rendered.artifacts[0].content
        get_hosts().put(serialization.load(EnvironmentSpec, body), body)

    def observe(self, handles: Iterable[EnvironmentHandle]) -> dict[str, EnvironmentStatus]:
        names = [handle.name for handle in handles]
        known = get_hosts().runs(names)
        return {name: build_status(known.get(name)) for name in names}

    def stop(self, handle: EnvironmentHandle, grace_seconds: float) -> None:
        get_hosts().stop(handle, grace_seconds)

    def delete(self, environment: str) -> bool:
        if not get_hosts().remove(environment):
            return False
        for path in (self.data_dir / "logs" / LOG_FOLDER / environment).glob("*.log"):
            path.unlink(missing_ok=True)
        return True

    def logs(self, handle: EnvironmentHandle, cursor: int, limit: int = 1 << 20) -> LogChunk:
        return logfiles.read_chunk(build_log_path(self.data_dir, handle), cursor, limit)

    def dial(self, handle: EnvironmentHandle) -> socket.socket:
        return get_hosts().channel(handle.name)


def build_status(report: EnvironmentRunReport | None) -> EnvironmentStatus:
    """Return the status of a run from what its host reported. Pure. A lost host reports nothing; once its run is
    stopped, whatever still runs there is ended by its agent before anything else of the environment starts."""
    if report is None:
        return EnvironmentStatus(EnvironmentPhase.ABSENT)
    said = report.environment_status
    if report.status == "lost":
        if report.stopped:
            return EnvironmentStatus(EnvironmentPhase.ENDED, False, Cause("HOST_LOST", {"host": report.host}))
        return EnvironmentStatus(EnvironmentPhase.UNKNOWN, None, waiting=Cause("HOST_LOST", {"host": report.host}))
    if said is None:
        if report.stopped:
            return EnvironmentStatus(EnvironmentPhase.ABSENT, False if not report.host else None)
        return EnvironmentStatus(EnvironmentPhase.STARTING, True, waiting=Cause("HOST_NOT_TOLD", {"host": report.host}))
    facts = {**said.facts, **(report.holds or {})}
    return EnvironmentStatus(said.phase, said.left, said.cause, said.waiting, said.doing, facts, said.activity)
