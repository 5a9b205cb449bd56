"""Facts about this machine: CPUs, memory, GPUs, versions, network. Unknown facts are left empty; nothing is guessed."""

import os
import platform
import socket
from importlib import metadata
from pathlib import Path
from typing import Any

from fermi.jobs import gpus
from fermi.telemetry import nvidia_smi

_SYS = Path("/sys/class")
_MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def collect_facts() -> dict[str, Any]:
    """Return this machine's facts as fields of a dev environment."""
    names, driver = _list_gpus()
    versions = {"python": platform.python_version(), "torch": _read_version("torch"), "driver": driver}
    return {
        "name": socket.gethostname()[:100],
        "host": socket.gethostname()[:200],
        "ip": "127.0.0.1",
        "cpu_cores": _count_cpus(),
        "memory_gb": max(round(_read_memory() / 2**30), 1),
        "gpu_type": gpus.shorten_name(names[0]) if names else "",
        "gpu_count": len(names),
        "versions": {name: version for name, version in versions.items() if version},
        "network": _describe_network(),
    }


def _list_gpus() -> tuple[list[str], str]:
    """Return the names of the GPUs, and the driver's version."""
    rows = [row for row in nvidia_smi.run_query(("driver_version", "name")) or [] if "name" in row]
    return [row["name"] for row in rows], rows[0].get("driver_version", "") if rows else ""


def _count_cpus() -> int:
    """Return the number of CPUs that this process may use, or of all where the system cannot tell."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def _describe_network() -> dict[str, Any]:
    """Return the network interface and InfiniBand devices. The interface is the loopback: all nodes of the local engine
    are on this machine."""
    loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    found: dict[str, Any] = {"interface": loopback[0]} if loopback else {}
    if _SYS.is_dir():
        devices = _SYS / "infiniband"
        active = {path.parts[-4] for path in devices.glob("*/ports/*/state") if "ACTIVE" in path.read_text()}
        found["infiniband"] = sorted(active)
    return found


def _read_memory() -> int:
    """Return the memory in bytes, or a container's limit where that is lower."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in map(Path, _MEMORY_LIMITS):
        if path.exists() and (text := path.read_text().strip()).isdigit():
            sizes.append(int(text))
    return min(sizes)


def _read_version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
