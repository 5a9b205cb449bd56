"""Ends a node's ranks before the container that they share with a user's notebook runs out of memory. Standard library
only, Python 3.9 or later.

With version 2 of control groups the kubelet sets `memory.oom.group`: when a container exceeds its limit, the kernel
kills all of its processes, the notebook too, whatever their `oom_score_adj` (kernel,
Documentation/admin-guide/cgroup-v2.rst). In a usual container limits cannot be written, but usage can be read.

Ranks are ended only if two independent measurements agree:

1. The group has used at least NEAR_LIMIT_SHARE of its limit with memory that cannot be reclaimed: without page cache
   and reclaimable slabs, and with no swap left.
2. The processes of the ranks (/proc) have grown meanwhile, by at least as much as all others together. From FULL_SHARE
   on it is enough that they hold MIN_RANK_SHARE of the limit, so that their end helps.

So page cache alone ends nothing, and neither does a notebook that grows, before FULL_SHARE. The less memory is left,
the shorter the pause between checks, for a process can take some GiB within a second; one that takes all that is left
between two checks is not caught.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fermi.runner import kernel, processes
from fermi.runner.bounds import map_processes_to_ranks
from fermi.runner.disk_space import format_bytes

NEAR_LIMIT_SHARE, FULL_SHARE, WATCHED_SHARE = 0.97, 0.99, 0.85
"""Shares of the limit; from WATCHED_SHARE on the ranks' own memory is read at each check."""
MIN_RANK_SHARE = 0.1
MAX_GROWTH_BYTES_PER_SECOND = 8 << 30
"""The largest growth of ranks that is expected."""
MAX_PAUSE_SECONDS, MIN_PAUSE_SECONDS = 0.2, 0.003
REST_FACTOR = 20
"""The pause after a check is at least so many times as long as the check took."""
GROWTH_SECONDS = 1.0
MIN_GROWTH_BYTES = 4 << 20
TREE_SECONDS = 0.25
RECLAIMABLE_FIELDS = frozenset((b"active_file", b"inactive_file", b"slab_reclaimable"))
"""Fields of version 2; those of version 1 that include the groups below have the prefix `total_`."""


class MemorySample(NamedTuple):
    """Bytes: `used` by the group, without what can be reclaimed; `ranks`: by the ranks' processes alone."""

    at: float
    used: int
    ranks: int


def is_running_out(samples: Sequence[MemorySample], limit: int) -> bool:
    """Return True if the ranks have to end, by the last sample and those before it."""
    last = samples[-1]
    if last.used < NEAR_LIMIT_SHARE * limit:
        return False
    if last.used >= FULL_SHARE * limit and last.ranks >= MIN_RANK_SHARE * limit:
        return True
    first = min(samples, key=lambda one: one.ranks)
    grown = last.ranks - first.ranks
    return grown >= MIN_GROWTH_BYTES and 2 * grown >= last.used - first.used


class MemoryGroup:
    """A control group with a memory limit. `folder`: where its files are."""

    def __init__(self, folder: str, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self._version_1 = not os.path.exists(f"{folder}/memory.current")

    def used(self) -> int:
        """Return the used bytes, without what the kernel reclaims before it kills. Raises OSError and ValueError."""
        before = b"total_" if self._version_1 else b""
        reclaimable = 0
        for line in _read(f"{self.folder}/memory.stat").splitlines():
            name, _, value = line.partition(b" ")
            if name.startswith(before) and name[len(before) :] in RECLAIMABLE_FIELDS:
                reclaimable += int(value)
        return max(0, int(_read(self._usage)) - reclaimable)

    def read_free_swap(self) -> int:
        """Return the bytes that may still go to swap; 0 if unknown."""
        with contextlib.suppress(OSError, ValueError, StopIteration):
            lines = _read("/proc/meminfo").splitlines()
            free = next(int(line.split()[1]) << 10 for line in lines if line.startswith(b"SwapFree:"))
            if self._version_1:
                limit, used = (int(_read(f"{self.folder}/memory.memsw.{one}_in_bytes")) for one in ("limit", "usage"))
                return max(0, min(free, limit - used))
            text = _read(f"{self.folder}/memory.swap.max").strip()
            return free if text == b"max" else min(free, int(text) - int(_read(f"{self.folder}/memory.swap.current")))
        return 0

    @property
    def _usage(self) -> str:
        return f"{self.folder}/memory.{'usage_in_bytes' if self._version_1 else 'current'}"


def find_limited_group(folders: Iterable[str] | None = None) -> MemoryGroup | None:
    """Return the group with the lowest limit that this process is in, or None if no limit is visible."""
    found = [
        (limit, folder) for folder in folders or kernel.list_memory_groups() if (limit := kernel.read_limit(folder))
    ]
    total = kernel.read_memory_limit() or 0
    limit, folder = min(found, default=(0, ""))
    return MemoryGroup(folder, limit) if 0 < limit <= total else None


class MemoryGuard:
    """Watches the memory in a thread. `leaders`: returns the rank of each rank's first process. `found` is set to the
    cause right before the guard kills the ranks, so that it is there when their end is noticed."""

    def __init__(self, group: MemoryGroup, leaders: Callable[[], Mapping[int, int]]) -> None:
        self.group, self._leaders = group, leaders
        self.found: dict[str, Any] | None = None
        self._samples: deque[MemorySample] = deque()
        self._tree: dict[int, int] = {}
        self._tree_at = self._tree_took = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory guard", daemon=True)

    def start(self) -> None:
        """Start the thread, once the ranks have started."""
        self._thread.start()

    def close(self) -> None:
        """Ask the thread to end."""
        self._ending.set()

    def check(self) -> dict[str, Any] | None:
        """Return the cause if the ranks have to end, else None. Raises OSError and ValueError."""
        limit, now, used = self.group.limit, time.monotonic(), self.group.used()
        if used < WATCHED_SHARE * limit:
            self._samples.clear()
            self._samples.append(MemorySample(now, used, 0))
            return None
        if now - self._tree_at > TREE_SECONDS or not self._tree:
            self._tree, self._tree_at = map_processes_to_ranks(processes.list_descendants(), self._leaders()), now
            self._tree_took = time.monotonic() - now
        each = {pid: _read_own_memory(pid) for pid in self._tree}
        if self._samples and not self._samples[0].ranks:
            self._samples.clear()  # the ranks' memory was not read
        self._samples.append(MemorySample(now, used, min(used, sum(each.values()))))
        while len(self._samples) > 2 and now - self._samples[1].at > GROWTH_SECONDS:
            self._samples.popleft()
        if not is_running_out(self._samples, limit) or self.group.read_free_swap() > (1 - FULL_SHARE) * limit:
            return None
        return self._told(used, each)

    def _told(self, used: int, each: Mapping[int, int]) -> dict[str, Any]:
        shares = Counter[int]()
        for pid, size in each.items():
            shares[self._tree[pid]] += size
        [(rank, most)] = shares.most_common(1)
        total = self._samples[-1].ranks
        return {
            "code": "OUT_OF_MEMORY", "rank": rank, "rankUsed": format_bytes(most), "ranksUsed": format_bytes(total),
            "othersUsed": format_bytes(max(0, used - total)), "used": format_bytes(used), "limit":
        format_bytes(self.group.limit), }  # fmt: skip

    def _run(self) -> None:
        while not self.found:
            began, self._tree_took = time.monotonic(), 0.0
            try:
                found = self.check()
            except (OSError, ValueError):  # what cannot be read ends no training
                found = None
            if found:
                self.found = found
                self._kill()
                return
            took = time.monotonic() - began - self._tree_took
            if self._ending.wait(max(REST_FACTOR * took, self._pause())):
                return

    def _pause(self) -> float:
        """Return the seconds in which the ranks cannot have taken more than half of what is left."""
        used = self._samples[-1].used if self._samples else 0
        left = NEAR_LIMIT_SHARE * self.group.limit - used
        return min(max(left / 2 / MAX_GROWTH_BYTES_PER_SECOND, MIN_PAUSE_SECONDS), MAX_PAUSE_SECONDS)

    def _kill(self) -> None:
        """Kill the listed processes; the node's runner ends what the ranks have started since."""
        leaders = self._leaders()
        for pid in sorted(self._tree, key=lambda pid: pid not in leaders):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _read_own_memory(pid: int) -> int:
    """Return a process's resident bytes without files (proc_pid_status(5)); shared memory counts for each process."""
    found = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in _read(f"/proc/{pid}/status").splitlines():
            if line.startswith((b"RssAnon:", b"RssShmem:")):
                found += int(line.split()[1]) << 10
    return found


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 1 << 16)
    finally:
        os.close(file)
