"""Ends a node's ranks before the container that they share with somebody's notebook has no memory left. Standard
library only, Python 3.9 or later.

With version 2 of control groups the kubelet sets `memory.oom.group`: where a container takes more memory than it may,
the kernel kills all of its processes, the notebook too, whatever their `oom_score_adj` (kernel,
Documentation/admin-guide/cgroup-v2.rst). Inside of a usual container nobody may write limits, but everybody may read
what is used.

Ranks are ended only where two things that are measured apart from each other say so:

1. The group has used at least NEAR of its limit with what cannot be taken back: without page cache and reclaimable
   slabs, and with no swap left.
2. The processes of the ranks (/proc) have grown meanwhile, by at least as much as all others together. From FULL on it
   is enough that they hold GIVES_BACK of the limit, so that their end helps.

Page cache by itself therefore ends nothing, and neither does a notebook that grows, before FULL. It is looked the more
often the less is left, for a process can take some GiB within a second; one that takes all that is left between two
looks is not caught.
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
from fermi.runner.bounds import ranks_of
from fermi.runner.disk_space import shown

NEAR, FULL, CLOSE = 0.97, 0.99, 0.85
"""Shares of the limit; from CLOSE on the ranks' own memory is read at each look."""
GIVES_BACK = 0.1
FASTEST = 8 << 30
"""Bytes per second that ranks are expected to take at most."""
SLOWEST_LOOK, QUICKEST_LOOK = 0.2, 0.003
REST = 20
"""So many times as long as a look took passes before the next one, at least."""
GROWTH_SECONDS = 1.0
LEAST_GROWTH = 4 << 20
TREE_SECONDS = 0.25
RECLAIMABLE = frozenset((b"active_file", b"inactive_file", b"slab_reclaimable"))
"""Of version 2; those of version 1 that count the groups below have `total_` before their names."""


class Sample(NamedTuple):
    """Bytes: `used` of the group, without what can be taken back; `ranks`: of the ranks' processes alone."""

    at: float
    used: int
    ranks: int


def is_running_out(samples: Sequence[Sample], limit: int) -> bool:
    """Returns whether the ranks have to end, by the last of the samples and those before it."""
    last = samples[-1]
    if last.used < NEAR * limit:
        return False
    if last.used >= FULL * limit and last.ranks >= GIVES_BACK * limit:
        return True
    first = min(samples, key=lambda one: one.ranks)
    grown = last.ranks - first.ranks
    return grown >= LEAST_GROWTH and 2 * grown >= last.used - first.used


class Group:
    """A control group with a limit of memory. `folder`: where its files are."""

    def __init__(self, folder: str, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self._version_1 = not os.path.exists(f"{folder}/memory.current")

    def used(self) -> int:
        """Bytes, without what the kernel takes back before it kills. Raises OSError and ValueError."""
        before = b"total_" if self._version_1 else b""
        reclaimable = 0
        for line in _read(f"{self.folder}/memory.stat").splitlines():
            name, _, value = line.partition(b" ")
            if name.startswith(before) and name[len(before) :] in RECLAIMABLE:
                reclaimable += int(value)
        return max(0, int(_read(self._usage)) - reclaimable)

    def swap_left(self) -> int:
        """Bytes that may still go to swap; 0 where nothing is known."""
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


def find_limited_group(folders: Iterable[str] | None = None) -> Group | None:
    """Returns the tightest limited group that this process is in; None where no limit is seen."""
    found = [(limit, folder) for folder in folders or kernel.find_groups() if (limit := kernel.limit_of(folder))]
    total = kernel.memory_limit() or 0
    limit, folder = min(found, default=(0, ""))
    return Group(folder, limit) if 0 < limit <= total else None


class MemoryGuard:
    """`leaders`: returns the rank of each rank's first process. `found` becomes why the node has to end, right before
    the guard kills the ranks: whoever learns of their end finds it."""

    def __init__(self, group: Group, leaders: Callable[[], Mapping[int, int]]) -> None:
        self.group, self._leaders = group, leaders
        self.found: dict[str, Any] | None = None
        self._samples: deque[Sample] = deque()
        self._tree: dict[int, int] = {}
        self._tree_at = self._tree_took = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory guard", daemon=True)

    def start(self) -> None:
        """Once the ranks have begun."""
        self._thread.start()

    def close(self) -> None:
        self._ending.set()

    def look(self) -> dict[str, Any] | None:
        """Returns why the ranks have to end; None while they need not. Raises OSError and ValueError."""
        limit, now, used = self.group.limit, time.monotonic(), self.group.used()
        if used < CLOSE * limit:
            self._samples.clear()
            self._samples.append(Sample(now, used, 0))
            return None
        if now - self._tree_at > TREE_SECONDS or not self._tree:
            self._tree, self._tree_at = ranks_of(processes.descendants(), self._leaders()), now
            self._tree_took = time.monotonic() - now
        each = {pid: _own_bytes(pid) for pid in self._tree}
        if self._samples and not self._samples[0].ranks:
            self._samples.clear()  # the ranks' memory was not read
        self._samples.append(Sample(now, used, min(used, sum(each.values()))))
        while len(self._samples) > 2 and now - self._samples[1].at > GROWTH_SECONDS:
            self._samples.popleft()
        if not is_running_out(self._samples, limit) or self.group.swap_left() > (1 - FULL) * limit:
            return None
        return self._told(used, each)

    def _told(self, used: int, each: Mapping[int, int]) -> dict[str, Any]:
        shares = Counter[int]()
        for pid, size in each.items():
            shares[self._tree[pid]] += size
        [(rank, most)] = shares.most_common(1)
        total = self._samples[-1].ranks
        return {
            "code": "OUT_OF_MEMORY", "rank": rank, "rankUsed": shown(most), "ranksUsed": shown(total),
            "othersUsed": shown(max(0, used - total)), "used": shown(used), "limit": shown(self.group.limit),
        }  # fmt: skip

    def _run(self) -> None:
        while not self.found:
            began, self._tree_took = time.monotonic(), 0.0
            try:
                found = self.look()
            except (OSError, ValueError):  # what cannot be read ends no training
                found = None
            if found:
                self.found = found
                self._kill()
                return
            took = time.monotonic() - began - self._tree_took
            if self._ending.wait(max(REST * took, self._pause())):
                return

    def _pause(self) -> float:
        """Seconds in which the ranks cannot have taken more than half of what is left."""
        used = self._samples[-1].used if self._samples else 0
        left = NEAR * self.group.limit - used
        return min(max(left / 2 / FASTEST, QUICKEST_LOOK), SLOWEST_LOOK)

    def _kill(self) -> None:
        """What the ranks have started since they were listed, the node's runner ends."""
        leaders = self._leaders()
        for pid in sorted(self._tree, key=lambda pid: pid not in leaders):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _own_bytes(pid: int) -> int:
    """What it has resident without files (proc_pid_status(5)); what it shares in memory counts for each that shares
    it."""
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
