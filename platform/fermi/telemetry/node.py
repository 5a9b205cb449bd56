"""Measure what a node uses: processors, memory, disks, network. Standard library only, Python 3.9 or later.

A node that is a container has the processors and the memory that its control group (version 2) has: the tightest limit
of its own group and those above it. Without a limit it has the machine's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from fermi.telemetry.proc_files import CounterRates, ProcFiles

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
SECTOR_BYTES = 512
IDLE_FIELD, IOWAIT_FIELD = 3, 4
"""Fields of a line of /proc/stat (proc(5)): of the first ten, all but these two are work; guests are in user time."""
VIRTUAL_PREFIXES = (
    "lo",
    "veth",
    "docker",
    "br-",
    "cni",
    "flannel",
    "cali",
    "tunl",
    "virbr",
    "dummy",
    "ifb",
    "kube",
    "nodelocal",
)
"""Prefixes of interfaces that no training uses between nodes; the loopback counts where there is no other."""
INFINIBAND_DIR = "/sys/class/infiniband"
WORD_BYTES = 4
"""Unit of `port_rcv_data` and `port_xmit_data` in bytes: a lane's words, by 4 (Linux, sysfs-class-infiniband)."""


class NodeReader:
    """Reader of a node. `folders`: where training reads and writes, whose disks are measured."""

    def __init__(self, files: ProcFiles, rates: CounterRates, folders: Iterable[str] = ()) -> None:
        self._files, self._rates, self._folders = files, rates, tuple(folders)
        self._group = ControlGroup(files)
        self._ports = [
            (f"{device}/{port}", f"{INFINIBAND_DIR}/{device}/ports/{port}/counters")
            for device in files.list(INFINIBAND_DIR)
            for port in files.list(f"{INFINIBAND_DIR}/{device}/ports")
        ]

    def read_values(self, now: float) -> dict[str, float]:
        """Return the node's values by key. `now`: monotonic seconds."""
        return {**self._processors(now), **self._memory(), **self._disks(now), **self._network(now)}

    def _processors(self, now: float) -> dict[str, float]:
        found: dict[str, float] = {}
        processors, used = self._group.processors(), self._group.seconds()
        if processors and used is not None:
            share = self._rates.compute_rate("cpu", used, now)
        else:
            fields = self._files.read("/proc/stat").partition(b"\n")[0].split()[1:9]
            numbers = [int(field) for field in fields]
            processors = float(os.cpu_count() or 1)
            work = sum(numbers) - sum(numbers[IDLE_FIELD : IOWAIT_FIELD + 1])
            share = (
                self._rates.compute_rate("cpu", work / TICKS_PER_SECOND, now) if len(numbers) > IOWAIT_FIELD else None
            )
        if share is not None:
            found["cpu"] = min(100.0, 100 * share / processors)
        with contextlib.suppress(ValueError, IndexError):
            found["load"] = float(self._files.read("/proc/loadavg").split()[0])
        return found

    def _memory(self) -> dict[str, float]:
        lines = (line.split() for line in self._files.read("/proc/meminfo").splitlines()[:8])
        known = {line[0]: int(line[1]) << 10 for line in lines if len(line) > 1 and line[1].isdigit()}
        found: dict[str, float] = {}
        limit, used = self._group.memory()
        if limit and used is not None:
            found.update(memory=used, memory_total=limit)
        elif b"MemTotal:" in known and b"MemAvailable:" in known:
            total = known[b"MemTotal:"]
            found.update(memory=total - known[b"MemAvailable:"], memory_total=total)
        if shared := _read_space(self._files.path("/dev/shm")):
            found.update(shm=shared[0], shm_total=shared[1])
        return found

    def _disks(self, now: float) -> dict[str, float]:
        """Return the use of the folders' file systems, by mount point, and the throughput of the devices that carry
        them."""
        found: dict[str, float] = {}
        devices: dict[str, str] = {}
        for folder in self._folders:
            with contextlib.suppress(OSError, ValueError):
                number = os.stat(folder).st_dev
                where = f"{os.major(number)}:{os.minor(number)}"
                if where in devices or not (space := _read_space(folder)):
                    continue
                devices[where] = name = _find_mount_point(folder)
                found[f"disk_used:{name}"], found[f"disk_total:{name}"] = space
        if not devices:
            return found
        for line in self._files.read("/proc/diskstats").splitlines():
            fields = line.split()
            mount = devices.get(f"{fields[0].decode()}:{fields[1].decode()}") if len(fields) > 9 else None
            if mount:
                for metric, field in (("disk_read", 5), ("disk_written", 9)):
                    key = f"{metric}:{mount}"
                    if (rate := self._rates.compute_rate(key, int(fields[field]) * SECTOR_BYTES, now)) is not None:
                        found[key] = rate
        return found

    def _network(self, now: float) -> dict[str, float]:
        counts: dict[str, tuple[int, int]] = {}
        for line in self._files.read("/proc/net/dev").splitlines()[2:]:
            interface, _, rest = line.partition(b":")
            fields = rest.split()
            if len(fields) >= 9:
                counts[interface.strip().decode()] = int(fields[0]), int(fields[8])
        real = {name: both for name, both in counts.items() if not name.startswith(VIRTUAL_PREFIXES)}
        found: dict[str, float] = {}
        for name, both in (real or counts).items():
            self._traffic(found, name, both, now)
        for name, folder in self._ports:
            received, sent = (self._files.number(f"{folder}/port_{way}_data") for way in ("rcv", "xmit"))
            if received is not None and sent is not None:
                self._traffic(found, name, (received * WORD_BYTES, sent * WORD_BYTES), now)
        return found

    def _traffic(self, values: dict[str, float], name: str, counts: tuple[int, int], now: float) -> None:
        for metric, count in zip(("received", "sent"), counts):  # noqa: B905 (strict is newer than 3.9)
            key = f"{metric}:{name}"
            if (rate := self._rates.compute_rate(key, count, now)) is not None:
                values[key] = rate


class ControlGroup:
    """Control group of this process, as far as it limits the node."""

    def __init__(self, files: ProcFiles) -> None:
        self._files = files
        self._cpu, self._quota = "", 0.0
        self._memory, self._limit = "", 0
        for folder in self._folders():
            quota = _parse_quota(files.once(f"{folder}/cpu.max"))
            if quota and (not self._quota or quota < self._quota):
                self._cpu, self._quota = folder, quota
            limit = files.once(f"{folder}/memory.max").strip()
            if limit.isdigit() and (not self._limit or int(limit) < self._limit):
                self._memory, self._limit = folder, int(limit)

    def processors(self) -> float:
        """Return how many processors it may use; 0 without a limit."""
        return self._quota

    def seconds(self) -> float | None:
        """Return the processor time that was used, in seconds; None without a limit."""
        return self._figure(self._cpu, "cpu.stat", b"usage_usec", 1e6) if self._quota else None

    def memory(self) -> tuple[int, float | None]:
        """Return the limit in bytes (0: none), and how much of it is used that the kernel could not free at once."""
        if not self._limit:
            return 0, None
        used = self._files.number(f"{self._memory}/memory.current")
        cached = self._figure(self._memory, "memory.stat", b"inactive_file", 1.0) or 0.0
        return self._limit, None if used is None else max(0.0, used - cached)

    def _figure(self, folder: str, file: str, name: bytes, unit: float) -> float | None:
        for line in self._files.read(f"{folder}/{file}").splitlines():
            found, _, value = line.partition(b" ")
            if found == name and value.isdigit():
                return int(value) / unit
        return None

    def _folders(self) -> Iterable[str]:
        """Yield the folders from its own group up to the root's."""
        lines = self._files.once("/proc/self/cgroup").decode(errors="replace").splitlines()
        path = next((line[3:].rstrip("/") for line in lines if line.startswith("0::")), None)
        while path is not None:
            yield f"/sys/fs/cgroup{path}"
            path = path.rpartition("/")[0] if path else None


def _parse_quota(text: bytes) -> float:
    fields = text.split()
    return int(fields[0]) / int(fields[1]) if len(fields) == 2 and fields[0].isdigit() and int(fields[1]) else 0.0


def _read_space(path: str) -> tuple[float, float] | None:
    """Return the bytes in use of a file system, and all that its users can use; None where it cannot be read."""
    with contextlib.suppress(OSError):
        found = os.statvfs(path)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        return float(used), float(used + found.f_bavail * found.f_frsize)
    return None


def _find_mount_point(path: str) -> str:
    """Return the mount point of a folder's file system."""
    path = os.path.realpath(path)
    device = os.stat(path).st_dev
    while path != "/" and os.stat(os.path.dirname(path)).st_dev == device:
        path = os.path.dirname(path)
    return path
