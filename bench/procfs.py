"""Facts about living processes from Linux's /proc."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory in MiB. `proportional` divides a page that several processes share among them, so that it adds up."""

    resident: float
    proportional: float


def read_memory(pids: Iterable[int]) -> MemoryUse:
    resident = proportional = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name == "Rss":
                resident += int(value.split()[0])
            elif name == "Pss":
                proportional += int(value.split()[0])
    return MemoryUse(resident / 1024, proportional / 1024)


def reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def read_peak(pid: int) -> float:
    """Return the largest resident size in MiB since the process started or `forget_peak`."""
    return int(Path(f"/proc/{pid}/status").read_text(encoding="utf-8").partition("VmHWM:")[2].split()[0]) / 1024


def read_cpu_seconds(pids: Iterable[int]) -> float:
    return sum(int(ticks) for pid in pids for ticks in _read_fields(pid)[11:13]) / TICKS


def list_children(pid: int) -> list[int]:
    return [child for child in _list_processes() if read_parent(child) == pid]


def list_descendants(pid: int) -> list[int]:
    """Return `pid` itself and all its descendants."""
    return [pid, *(below for child in list_children(pid) for below in list_descendants(child))]


def read_command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").replace("\0", " ")


def find_standby(worker: int) -> int | None:
    """Return the process that stands by for this worker, once it has imported everything: then it waits without using
    the processor."""
    for pid in list_children(worker):
        if "fermi.runner.fork_server" in read_command(pid):
            before = read_cpu_seconds([pid])
            time.sleep(0.5)
            return pid if before > 0.5 and read_cpu_seconds([pid]) == before else None
    return None


def _list_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read_parent(pid: int) -> int:
    try:
        return int(_read_fields(pid)[1])
    except (FileNotFoundError, ProcessLookupError):
        return -1


def _read_fields(pid: int) -> list[bytes]:
    """Return the fields from the state on: fields 3 … of proc(5)."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
