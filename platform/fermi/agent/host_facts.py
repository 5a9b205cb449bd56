"""Facts about its host that an agent reports when it registers."""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from fermi.agent.errors import AgentError
from fermi.agent.settings import Settings
from fermi.engines.local import container_engines
from fermi.planning import plugins
from fermi.runner import interfaces, ports
from fermi.telemetry import nvidia_smi

MIN_PORT = 1024
"""No rendezvous port is below."""
MAX_PORTS = 256
ENGINE_WAIT_SECONDS = 3.0
"""How long the first report of a host's facts waits for it; a later result is reported later."""


EMULATED_GPU_TYPE = "A100"
"""The default GPU type that CPU processes emulate; the platform marks it as emulated."""

_VERSIONS_PROGRAM = """
import importlib.metadata as m, json, sys
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
found = {"python": sys.version.split()[0], **{name: version(name) for name in sys.argv[1:]},
         "cuda": version("nvidia-cuda-runtime-cu12") or version("nvidia-cuda-runtime")}
print(json.dumps(found))
"""


def choose_gpus(settings: Settings, numbers: Mapping[str, int]) -> dict[str, int | None]:
    """Return the GPU of each worker, None = a CPU process; if none is named, one worker for each GPU of the host. A
    host without a GPU has one worker, unless processes emulate GPUs (`emulate`). Raises AgentError for a GPU that the
    host does not have."""
    rows = [] if settings.emulate else nvidia_smi.run_query(("index", "uuid")) or []
    there = [index for row in rows if (index := nvidia_smi.get_int(row, "index")) is not None]
    wanted = numbers or {f"{settings.node}-{number}": number for number in there or (0,)}
    if not there and (settings.emulate or (not settings.gpus and len(wanted) == 1)):
        return dict.fromkeys(wanted)
    if missing := sorted(number for number in wanted.values() if number not in there):
        found, allowed = ", ".join(map(str, missing)), ", ".join(map(str, sorted(there))) or "–"
        raise AgentError("WORKER_GPU_MISSING", found=found, allowed=allowed)
    return dict(wanted)


def find_address(settings: Settings, server_host: str, server_port: int) -> str:
    """Return the address by which other hosts reach this one: the configured one, else the one that reaches the
    platform."""
    if settings.address:
        return settings.address
    with suppress(OSError):
        family, kind, _, _, target = socket.getaddrinfo(server_host, server_port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)  # of a datagram socket: nothing is sent, a route is chosen
            return str(probe.getsockname()[0])
    return socket.gethostname()


def collect_facts(
    settings: Settings, machine: str, where: str, python: str, workspace: str, containers: str
) -> dict[str, Any]:
    """Return the facts. `containers`: the engine that runs images here; empty: none."""
    rows = [] if settings.emulate else nvidia_smi.run_query(("driver_version", "name")) or []
    stack = _query_versions(python)
    versions = {
        **{name: value for name, value in stack.items() if value},
        "fermi": _read_own_version(),
        **({"driver": rows[0].get("driver_version", "")} if rows else {}),
    }
    return {
        "machineId": machine,
        "host": socket.gethostname(),
        "address": where,
        "ip": _resolve_ip(where),
        "network": _describe_network(where),
        "zone": settings.zone,
        "gpuType": settings.gpu_type
        or (rows[0].get("name", "") if rows else EMULATED_GPU_TYPE if settings.emulate else ""),
        "gpuCount": len(rows),
        "emulated": settings.emulate,
        "cpuCores": len(os.sched_getaffinity(0)),
        "memoryGb": max(1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30),
        "versions": versions,
        "lacks": [name for name, value in stack.items() if not value and name != "cuda"] if stack else None,
        "interfaces": [name for _, name in socket.if_nameindex()],
        "workspace": workspace,
        "python": python,
        "containers": containers,
    }


def _resolve_ip(where: str) -> str | None:
    with suppress(OSError):
        return str(socket.getaddrinfo(where, 0, type=socket.SOCK_STREAM)[0][4][0])
    return None


def _describe_network(where: str) -> dict[str, Any]:
    """Return what is known, in the form that `fermi.jobs.network` reads."""
    found: dict[str, Any] = {}
    if interface := interfaces.find_interface_to(where):
        found["interface"] = interface
    with suppress(OSError):
        found["infiniband"] = sorted(os.listdir("/sys/class/infiniband"))
    return found


def _read_own_version() -> str:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version("fermi-training")
    return ""


def _query_versions(python: str) -> dict[str, str | None]:
    """Return the versions of the training stack, None for what is missing; empty for an interpreter that cannot be run,
    because ranks will report why."""
    try:
        done = subprocess.run(
            [python, "-c", _VERSIONS_PROGRAM, *plugins.list_libraries()],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=60,
            check=True,
        )
        found: dict[str, str | None] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return found


class BusyPorts:
    """TCP ports of this host on which other processes listen: the platform starts no rank 0 on one of them. Looks the
    processes up only when the ports or our own ranks have changed, because that reads all processes."""

    def __init__(self) -> None:
        self._seen: Any = None
        self._told: list[dict[str, Any]] = []

    def list_ports(self, own: Collection[int]) -> list[dict[str, Any]]:
        """Return the ports with their holders. `own`: the sessions of this host's ranks, whose ports the platform
        knows."""
        found = {port: names for port, names in ports.list_listening_ports().items() if port >= MIN_PORT}
        if (seen := (found, set(own))) != self._seen:
            self._seen = seen
            who = ports.find_holders(found)
            foreign = [port for port in sorted(found) if port not in who or _read_session(who[port][0]) not in own]
            self._told = [
                {"port": port, "holder": who[port][1] if port in who else None} for port in foreign[:MAX_PORTS]
            ]
        return self._told


def _read_session(pid: int) -> int:
    with suppress(OSError):
        return os.getsid(pid)
    return 0


class ContainerEngineLookup:
    """The container engine of this host, detected in a thread of its own: one that hangs delays no heartbeat.
    `words`: what is reported to the platform, empty for none. `folder`: where the check may leave an empty folder."""

    def __init__(self, folder: Path, *, enabled: bool) -> None:
        self.wanted, self.words = enabled, ""
        self._folder = folder
        self._looked = threading.Event()

    def find_engine(self) -> str:
        """Check for an engine and return its description."""
        found = container_engines.find_container_engine(self._folder)
        self.words = found.words if found else ""
        self._looked.set()
        return self.words

    def soon(self) -> str:
        """Return the description, after waiting for the first check for a moment."""
        if self.wanted:
            self._looked.wait(ENGINE_WAIT_SECONDS)
        return self.words
