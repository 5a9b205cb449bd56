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

GIB = 1 << 30
NVIDIA_SMI_TIMEOUT_SECONDS = 30.0
CONNECT_TIMEOUT_SECONDS = 5.0


class HostCheck(NamedTuple):
    """Result of a check."""

    level: Literal["pass", "warn", "fail"]
    text: str


class CheckTarget(NamedTuple):
    """The master that is checked, as the other nodes reach it."""

    host: str
    port: int


def check_port(where: CheckTarget) -> Iterator[HostCheck]:
    """Check whether rank 0 could listen on the port of this machine."""
    if ports.is_port_free(where.port):
        yield HostCheck("pass", _("PORT_FREE", port=where.port))
    else:
        who = ports.describe_holder(where.port) or _("ANOTHER_USERS_PROCESS")
        yield HostCheck("fail", _("PORT_IN_USE", port=where.port, who=who))


def check_network(where: CheckTarget) -> Iterator[HostCheck]:
    """Check the network from here to the master: name, interface and port."""
    try:
        found = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)
    except OSError as error:
        yield HostCheck("fail", _("HOST_NOT_RESOLVED", host=where.host, why=error))
        return
    addresses = list(dict.fromkeys(str(item[4][0]) for item in found))
    loopback = any(address.startswith("127.") or address == "::1" for address in addresses)
    text = _("HOST_ADDRESSES", host=where.host, addresses=", ".join(addresses))
    if loopback and where.host not in addresses and where.host != "localhost":
        yield HostCheck("warn", text + " " + _("ADDRESS_IS_LOOPBACK"))
    else:
        yield HostCheck("pass", text)
    if interface := interfaces.find_interface_to(where.host):
        yield HostCheck("pass", _("WAY_BY_INTERFACE", interface=interface))
    try:
        socket.create_connection((where.host, where.port), CONNECT_TIMEOUT_SECONDS).close()
    except ConnectionRefusedError:
        text = _("NOTHING_LISTENS", host=where.host, port=where.port)
        yield HostCheck("warn", text + " " + _("RIGHT_UNTIL_RANK_0_STARTS"))
    except OSError as error:
        text = _("PORT_NOT_REACHED", host=where.host, port=where.port, why=error)
        yield HostCheck("fail", text)
    else:
        yield HostCheck("pass", _("PORT_REACHED", host=where.host, port=where.port))


def check_memory(_where: CheckTarget) -> Iterator[HostCheck]:
    """Check the free memory of the machine, of /dev/shm and of the GPUs, with the processes that hold it."""
    values = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines())
    free, total = (int(values[name].split()[0]) / (1 << 20) for name in ("MemAvailable", "MemTotal"))
    level: Literal["pass", "warn"] = "pass" if free > total / 10 else "warn"
    yield HostCheck(level, _("MEMORY_AVAILABLE", free=f"{free:.1f}", total=f"{total:.1f}"))
    shared = shutil.disk_usage("/dev/shm")
    level = "pass" if shared.free >= GIB else "warn"
    yield HostCheck(level, _("SHM_FREE", free=f"{shared.free / GIB:.1f}"))
    yield from _check_gpus()


def _check_gpus() -> Iterator[HostCheck]:
    rows = nvidia_smi.run_query(("index", "memory.used", "memory.total", "name"), seconds=NVIDIA_SMI_TIMEOUT_SECONDS)
    if not rows:
        yield HostCheck("pass", _("NO_GPUS_HERE"))
        return
    for row in rows:
        used, total = nvidia_smi.get_number(row, "memory.used"), nvidia_smi.get_number(row, "memory.total")
        level: Literal["pass", "warn"] = "pass" if used is None or total is None or used < total / 10 else "warn"
        one, memory, of = f"{row.get('index')}", row.get("memory.used", "–"), row.get("memory.total", "–")
        yield HostCheck(level, _("GPU_MEMORY_USED", index=one, name=row.get("name"), used=memory, total=of))
    for row in (
        nvidia_smi.run_query(
            ("pid", "used_memory", "process_name"), target="compute-apps", seconds=NVIDIA_SMI_TIMEOUT_SECONDS
        )
        or ()
    ):
        name, memory = row.get("process_name", "–"), row.get("used_memory", "–")
        yield HostCheck("warn", _("GPU_HELD_BY_PROCESS", pid=row.get("pid"), name=name, used=memory))


def check_packages(_where: CheckTarget) -> Iterator[HostCheck]:
    """Check which training packages this interpreter has."""
    for name in plugins.list_stacks():
        try:
            yield HostCheck("pass", f"{name} {version(name)}")
        except PackageNotFoundError:
            yield HostCheck("warn", _("NOT_INSTALLED_IN_PYTHON", name=name))


CHECKS: dict[str, Callable[[CheckTarget], Iterator[HostCheck]]] = {
    "port": check_port,
    "network": check_network,
    "memory": check_memory,
    "stack": check_packages,
}


def run_checks(names: list[str], where: CheckTarget) -> list[HostCheck]:
    """Run these checks and return their results."""
    return [look for name in names for look in CHECKS[name](where)]
