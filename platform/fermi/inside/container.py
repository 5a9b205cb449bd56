"""Describes the container of an environment, as its own processes see it. Standard library only, Python 3.9 or later.
What cannot be read is left out."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from fermi.runner import interfaces
from fermi.telemetry.node import ControlGroup, NodeReader
from fermi.telemetry.proc_files import CounterRates, ProcFiles

MAX_DEVICES = 64
CGROUP_FOLDER = "/sys/fs/cgroup"
RDMA_FOLDER, VERBS_FOLDER = "/sys/class/infiniband", "/sys/class/infiniband_verbs"
NO_LIMIT_BYTES = 1 << 60
"""Bytes: version 1 of control groups has so much if there is no limit."""


def describe_container(home: str, root: str = "/") -> dict[str, Any]:
    """Return its limits and usage (bytes; `processors` is a number of CPUs), its network interfaces and RDMA devices.
    `home`: the folder of our files."""
    files = ProcFiles(root)
    used = NodeReader(files, CounterRates()).read_values(0.0)
    memory = {"memory_limit": used.get("memory_total"), "memory_used": used.get("memory")}
    group = ControlGroup(files)
    limit, quota = group.memory()[0], group.processors()
    if not limit:
        memory.update(_read_memory_v1(files))
    shm = {"shm_total": used.get("shm_total"), "shm_used": used.get("shm")}
    processors = quota or _read_quota_v1(files) or float(len(os.sched_getaffinity(0)))
    told = {
        **{name: value if value is None else int(value) for name, value in {**memory, **shm}.items()},
        "memory_is_limited": bool(limit) or "memory_limited" in memory,
        "processors": round(processors, 2),
        "interfaces": _list_interfaces(files),
        "rdma": _list_rdma(files),
        "cgroups_writable": os.access(files.path(CGROUP_FOLDER), os.W_OK),
        "home": home,
        "user": os.getuid(),
    }  # fmt: skip
    told.pop("memory_limited", None)
    return {name: value for name, value in told.items() if value is not None}


def _read_memory_v1(files: ProcFiles) -> dict[str, Any]:
    """Return `memory.usage_in_bytes` less what the kernel could reclaim
    (Documentation/admin-guide/cgroup-v1/memory.rst)."""
    folder = f"{CGROUP_FOLDER}/memory"
    limit, used = (files.number(f"{folder}/memory.{name}_in_bytes") for name in ("limit", "usage"))
    if limit is None or used is None or limit >= NO_LIMIT_BYTES:
        return {}
    lines = (line.split() for line in files.read(f"{folder}/memory.stat").splitlines())
    stat = {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}
    return {
        "memory_limit": limit,
        "memory_used": max(0, used - stat.get(b"total_inactive_file", 0)),
        "memory_limited": 1,
    }


def _read_quota_v1(files: ProcFiles) -> float:
    quota, period = (files.number(f"{CGROUP_FOLDER}/cpu/cpu.cfs_{name}_us") for name in ("quota", "period"))
    return quota / period if quota and period else 0.0


def _list_interfaces(files: ProcFiles) -> list[dict[str, Any]]:
    """Return the interfaces. `up`: it has a carrier; `speed`: in Mbit/s, if the driver reports it."""
    found = list[dict[str, Any]]()
    with contextlib.suppress(OSError):
        for name in interfaces.list_interfaces()[:MAX_DEVICES]:
            folder = f"/sys/class/net/{name}"
            state, speed = files.once(f"{folder}/operstate").strip(), files.once(f"{folder}/speed").strip()
            found.append({
                "name": name, "addresses": sorted(interfaces.list_addresses(name))[:MAX_DEVICES],
                "up": state in (b"up", b"unknown"), **({"speed": int(speed)} if speed.isdigit() else {}),
            })  # fmt: skip
    return found


def _list_rdma(files: ProcFiles) -> list[dict[str, Any]]:
    """Return the devices with their first port's link layer and state, as in sysfs, which has those of the whole
    machine. `usable`: the container was given the device (its `uverbs`, through which libibverbs opens it)."""
    found = []
    given = {
        files.read(f"{VERBS_FOLDER}/{name}/ibdev").decode(errors="replace").strip()
        for name in files.list("/dev/infiniband")
        if name.startswith("uverbs")
    }
    for device in files.list(RDMA_FOLDER)[:MAX_DEVICES]:
        ports = files.list(f"{RDMA_FOLDER}/{device}/ports")
        folder = f"{RDMA_FOLDER}/{device}/ports/{ports[0]}" if ports else ""
        told: dict[str, Any] = {"device": device, "usable": device in given}
        for name, file in (("layer", "link_layer"), ("state", "state")):
            if folder and (text := files.once(f"{folder}/{file}").decode(errors="replace").strip()):
                told[name] = text.rpartition(": ")[2]
        found.append(told)
    return found
