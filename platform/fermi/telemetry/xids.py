"""Errors of NVIDIA's GPUs (Xids), as the driver writes them into the kernel's log. Standard library only, Python 3.9 or
later.

    NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 94, pid=4711, name=python, Contained: CE User Channel …
    NVRM: Xid (0000:03:00): 48, An uncorrectable double bit error (DBE) has been detected …      older drivers

The log is read from `/dev/kmsg`, and where that is not allowed from the journal, if there is one: each takes a right
(CAP_SYSLOG; the group `systemd-journal` or `adm`) that few processes have, and no container. Without it nothing is
known.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from fermi.telemetry import nvidia_smi
from fermi.telemetry.slow_command import BackgroundCommand

KERNEL_LOG = "/dev/kmsg"
DEVICES_DIR = "/proc/driver/nvidia/gpus"
"""Folder with a folder for each GPU, named by its bus address: the order in which the driver counts them."""
JOURNAL_COMMAND = ("journalctl", "--dmesg", "--grep=NVRM: Xid", "--output=short-unix", "--no-pager", "--quiet")
JOURNAL_SECONDS = 15.0
EXPLAINS_SECONDS = 1800.0
"""For so long after an Xid it may be why a rank ends: peers wait in a collective for no longer."""
PROCESS_XIDS = (13, 31, 43, 45)
"""Xids of what a process had the GPU do (NVIDIA's list of Xids: an exception of a kernel, a page fault, work that was
ended): they say nothing of other processes with the same GPU."""
MAX_LINE_CHARS = 300
MAX_READS = 1 << 12
MAX_PROCESSES = 256
"""Processes whose last Xid is kept."""
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-f]+):([0-9a-f]+):([0-9a-f]+)[^)]*\): (\d+)(?:, pid=(\d+))?", re.IGNORECASE
)
BusAddress = tuple[int, ...]
"""Domain, bus and device."""


class Xid(NamedTuple):
    """An error of a GPU. `at`: seconds since boot. `pid`: as the machine counts, where the driver knows it."""

    number: int
    bus: BusAddress
    pid: int | None
    line: str
    at: float


def parse_line(line: str, at: float) -> Xid | None:
    """Return the Xid of a line of the kernel's log; None: it has none. `at`: seconds since boot."""
    found = _XID.search(line)
    if not found:
        return None
    domain, bus, device, number, pid = found.groups()
    place = int(domain, 16), int(bus, 16), int(device, 16)
    return Xid(int(number), place, int(pid) if pid else None, line[found.start() :].strip()[:MAX_LINE_CHARS], at)


class XidReader:
    """Reader of the Xids of GPUs that CUDA_VISIBLE_DEVICES names, from now on; without GPUs nothing is opened. May be
    used by several threads."""

    def __init__(
        self,
        visible: str | None,
        log: str = KERNEL_LOG,
        devices: str = DEVICES_DIR,
        journal: Sequence[str] = JOURNAL_COMMAND,
    ) -> None:
        self._buses = list_buses(visible, devices)
        self._newest: dict[int, Xid] = {}  # by place
        self._blamed: dict[int, tuple[int, Xid]] = {}  # by process, with the place; others may have the same GPU
        self._lock = threading.Lock()
        self._log = _open_log(log) if self._buses else None
        self._journal, self._command = BackgroundCommand(JOURNAL_SECONDS), journal
        self._since = time.time()

    def descriptors(self) -> list[int]:
        """Return file descriptors that no rank may inherit: reading them takes a right."""
        return [] if self._log is None else [self._log]

    def read_xids(self) -> dict[int, int]:
        """Return the newest number of each GPU that has had one, by place."""
        if not self._buses:
            return {}
        with self._lock:
            for xid in self._from_journal() if self._log is None else self._from_log(self._log):
                if xid.bus in self._buses:
                    self._keep(self._buses.index(xid.bus), xid)
            return {place: xid.number for place, xid in self._newest.items()}

    def _keep(self, place: int, xid: Xid) -> None:
        self._newest[place] = xid
        if xid.pid:
            self._blamed.pop(xid.pid, None)
            self._blamed[xid.pid] = place, xid
            if len(self._blamed) > MAX_PROCESSES:
                del self._blamed[next(iter(self._blamed))]

    def explains(self, place: int, pid: int) -> dict[str, Any] | None:
        """Return the Xid that may be why the rank that had the GPU `place`, the process `pid`, has just ended; None:
        none."""
        self.read_xids()
        with self._lock:
            found = [*self._newest.items(), *([self._blamed[pid]] if pid in self._blamed else [])]
        for known, xid in sorted(found, key=lambda one: -one[1].at):
            its_own = xid.pid == pid or (known == place and not (xid.pid and xid.number in PROCESS_XIDS))
            if its_own and time.monotonic() - xid.at < EXPLAINS_SECONDS:
                return {"by": "gpu", "gpu": known, "xid": xid.number, "line": xid.line}
        return None

    @staticmethod
    def _from_log(log: int) -> list[Xid]:
        """Return the Xids of new records of the kernel's log: priority, number, microseconds since boot, flags; then
        the text."""
        found = []
        for _ in range(MAX_READS):
            try:
                said = os.read(log, 8192)
            except BrokenPipeError:  # overwritten meanwhile
                continue
            except OSError:
                break
            if not said:
                break
            for record in said.decode(errors="replace").splitlines():
                head, _, text = record.partition(";")
                with contextlib.suppress(ValueError, IndexError):
                    found.append(parse_line(text, int(head.split(",")[2]) / 1e6))
        return [xid for xid in found if xid]

    def _from_journal(self) -> list[Xid]:
        """Return the Xids of the journal's last answer, and ask again in the background."""
        now, found = time.monotonic(), []
        passed = time.time() - now
        for line in (self._journal.poll(now) or "").splitlines():
            with contextlib.suppress(ValueError, IndexError):
                if (moment := float(line.split()[0])) > self._since:
                    found.append(parse_line(line, moment - passed))
                    self._since = moment
        if self._journal.is_due(now):
            self._journal.start([*self._command, f"--since=@{int(self._since)}"], now)
        return [xid for xid in found if xid]


def list_buses(visible: str | None, devices: str = DEVICES_DIR) -> list[BusAddress]:
    """Return the bus addresses of the GPUs that the ranks may use, in their order."""
    found: list[BusAddress] = []
    uuids = []
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(devices)):
            with contextlib.suppress(ValueError):
                domain, bus, device = name.split(".")[0].split(":")
                found.append((int(domain, 16), int(bus, 16), int(device, 16)))
                uuids.append(_read_uuid(f"{devices}/{name}/information"))
    return [found[index] for index in nvidia_smi.list_visible_gpus(visible, uuids)]


def _read_uuid(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("GPU UUID:"):
                return line.partition(":")[2].strip()
    return ""


def _open_log(log: str) -> int | None:
    """Open the kernel's log at its end. None where that is not allowed."""
    try:
        opened = os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            os.lseek(opened, 0, os.SEEK_END)
    except OSError:
        return None
    return opened
