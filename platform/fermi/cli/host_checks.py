"""Checks of this machine and of the network to the master, for `fermi quickstart`."""

import shutil
import socket
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, NamedTuple

from fermi.cli.texts import _
from fermi.planning import plugins
from fermi.runner import interfaces, ports
from fermi.telemetry import nvidia_smi

GB = 1 << 30
GPU_SECONDS = 30.0
TIMEOUT_S = 5.0


class Look(NamedTuple):
    """Result of a check."""

    level: Literal["pass", "warn", "fail"]
    text: str


class Where(NamedTuple):
    """The master that is checked, as the other nodes reach it."""

    host: str
    port: int


def port(where: Where) -> Iterator[Look]:
    """Check whether rank 0 could listen on the port of this machine."""
    if ports.is_port_free(where.port):
        yield Look("pass", _("PORT_FREE", port=where.port))
    else:
        who = ports.describe_holder(where.port) or _("ANOTHER_USERS_PROCESS")
        yield Look("fail", _("PORT_IN_USE", port=where.port, who=who))


def network(where: Where) -> Iterator[Look]:
    """Check the network from here to the master: name, interface and port."""
    try:
        found = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)
    except OSError as error:
        yield Look("fail", _("HOST_NOT_RESOLVED", host=where.host, why=error))
        return
    addresses = list(dict.fromkeys(str(item[4][0]) for item in found))
    loopback = any(address.startswith("127.") or address == "::1" for address in addresses)
    text = _("HOST_ADDRESSES", host=where.host, addresses=", ".join(addresses))
    if loopback and where.host not in addresses and where.host != "localhost":
        yield Look("warn", text + " " + _("ADDRESS_IS_LOOPBACK"))
    else:
        yield Look("pass", text)
    if interface := interfaces.find_interface_to(where.host):
        yield Look("pass", _("WAY_BY_INTERFACE", interface=interface))
    try:
        socket.create_connection((where.host, where.port), TIMEOUT_S).close()
    except ConnectionRefusedError:
        text = _("NOTHING_LISTENS", host=where.host, port=where.port)
        yield Look("warn", text + " " + _("RIGHT_UNTIL_RANK_0_STARTS"))
    except OSError as error:
        text = _("PORT_NOT_REACHED", host=where.host, port=where.port, why=error)
        yield Look("fail", text)
    else:
        yield Look("pass", _("PORT_REACHED", host=where.host, port=where.port))


def memory(_where: Where) -> Iterator[Look]:
    """Check the free memory of the machine, of /dev/shm and of the GPUs, with the processes that hold it."""
    values = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines())
    free, total = (int(values[name].split()[0]) / (1 << 20) for name in ("MemAvailable", "MemTotal"))
    level: Literal["pass", "warn"] = "pass" if free > total / 10 else "warn"
    yield Look(level, _("MEMORY_AVAILABLE", free=f"{free:.1f}", total=f"{total:.1f}"))
    shared = shutil.disk_usage("/dev/shm")
    level = "pass" if shared.free >= GB else "warn"
    yield Look(level, _("SHM_FREE", free=f"{shared.free / GB:.1f}"))
    yield from _gpus()


def _gpus() -> Iterator[Look]:
    rows = nvidia_smi.run_query(("index", "memory.used", "memory.total", "name"), seconds=GPU_SECONDS)
    if not rows:
        yield Look("pass", _("NO_GPUS_HERE"))
        return
    for row in rows:
        used, total = nvidia_smi.get_number(row, "memory.used"), nvidia_smi.get_number(row, "memory.total")
        level: Literal["pass", "warn"] = "pass" if used is None or total is None or used < total / 10 else "warn"
        one, memory, of = f"{row.get('index')}", row.get("memory.used", "–"), row.get("memory.total", "–")
        yield Look(level, _("GPU_MEMORY_USED", index=one, name=row.get("name"), used=memory, total=of))
    for row in (
        nvidia_smi.run_query(("pid", "used_memory", "process_name"), target="compute-apps", seconds=GPU_SECONDS) or ()
    ):
        name, memory = row.get("process_name", "–"), row.get("used_memory", "–")
        yield Look("warn", _("GPU_HELD_BY_PROCESS", pid=row.get("pid"), name=name, used=memory))


def stack(_where: Where) -> Iterator[Look]:
    """Check which training packages this interpreter has."""
    for name in plugins.list_stacks():
        try:
            yield Look("pass", f"{name} {version(name)}")
        except PackageNotFoundError:
            yield Look("warn", _("NOT_INSTALLED_IN_PYTHON", name=name))


CHECKS: dict[str, Callable[[Where], Iterator[Look]]] = {
    "port": port,
    "network": network,
    "memory": memory,
    "stack": stack,
}


def run(names: list[str], where: Where) -> list[Look]:
    """Run these checks and return their results."""
    return [look for name in names for look in CHECKS[name](where)]
