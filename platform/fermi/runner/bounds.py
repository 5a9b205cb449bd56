"""Limits of what a task may use of a machine that it shares with others and with the platform. The node's runner
counts, and ends the node with a cause before the machine runs out. Standard library only, Python 3.9 or later.

They stand in a node's spec:

    "bounds": {"processes": 4096, "open_files": 1048576, "memory": null, "disk": null, "reserve": 0.05,
               "control_group": true}

processes       of one node. Threads: `THREADS_PER_PROCESS` times as many. Neither may exceed half of what the machine
                can have; 0 = not counted
open_files      of one node, and of each process (RLIMIT_NOFILE); 0 = not counted
memory          in bytes; null = `DEFAULT_MEMORY_SHARE` of the machine's; false = limited by the runner's parent
disk, reserve   see `disk_usage.py`
control_group   the kernel limits memory and threads if possible (`cgroups.py`): then of all nodes of the task on this
                machine together, and memory is not counted here

RLIMIT_NPROC does not help: it counts the processes of a user, whom tasks share (getrlimit(2)).

Counting processes means reading all of /proc. A task cannot have grown by more than the machine has since, except for
what others released; so it is counted when that much could exceed a limit, and otherwise every `COUNT_PERIOD_SECONDS`.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fermi.runner import cgroups, kernel, processes
from fermi.runner.disk_space import format_bytes
from fermi.runner.run_names import parse_run_name

DEFAULT_MAX_PROCESSES, DEFAULT_MAX_OPEN_FILES, DEFAULT_RESERVE_PERCENT = 4096, 1 << 20, 5.0
"""Defaults of a run by hand."""
THREADS_PER_PROCESS = 8
DEFAULT_MEMORY_SHARE = 0.95
COUNT_PERIOD_SECONDS = 10.0
REST_FACTOR = 20
MAX_REST_SECONDS = 1.0
"""The next count is REST_FACTOR times as long away as the last one took, and at most so many seconds."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
NO_LIMIT = 1 << 62


class ResourceUse(NamedTuple):
    """What the whole machine, or a node's processes, use: threads, open files, bytes of memory."""

    threads: int = 0
    open_files: int = 0
    memory: int = 0


def build_bounds(
    processes: int = DEFAULT_MAX_PROCESSES,
    open_files: int = DEFAULT_MAX_OPEN_FILES,
    memory_gb: float = 0,
    disk_gb: float = 0,
    reserve_percent: float = DEFAULT_RESERVE_PERCENT,
) -> dict[str, Any]:
    """Return the limits of a run that has a machine to itself, for its spec. Memory and disk in GiB, reserve in
    percent; 0 = no limit."""
    return {
        "processes": processes, "open_files": open_files, "memory": int(memory_gb * 2**30) or False,
        "disk": int(disk_gb * 2**30) or None, "reserve": reserve_percent / 100, "control_group": False,
    }  # fmt: skip


class Bounds:
    """Sets and checks the limits of one node. `name`: the attempt's. `leaders`: returns the rank of each rank's first
    process, including ended ones, whose children are still in their sessions. Create it before the ranks start, which
    inherit limits."""

    def __init__(self, order: Mapping[str, Any], name: str, leaders: Callable[[], Mapping[int, int]]) -> None:
        self.task = parse_run_name(name)[0]
        self._leaders = leaders
        most, processes = read_max_threads() // 2, int(order["processes"])
        self.processes = min(processes, most) if processes else NO_LIMIT
        self.threads = min(THREADS_PER_PROCESS * processes, most) if processes else NO_LIMIT
        self.open_files = int(order["open_files"]) or NO_LIMIT
        self.memory = _choose_memory_limit(order.get("memory"))
        limits = {"pids": self.threads, **({"memory": self.memory} if self.memory else {})}
        self.group = cgroups.join_group(name, limits) if order.get("control_group") else None
        if self.group and "memory" in self.group.held:
            self.memory = None
        self._before, self._own = _read_machine_use(), ResourceUse()
        self._refusals = self.group.count_refused_forks() if self.group else 0
        self._count_at = self._again_at = 0.0

    def limit_process(self) -> None:
        """Limit the open files of the calling process and of its children."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if self.open_files == NO_LIMIT:
            return
        if hard == resource.RLIM_INFINITY or hard > self.open_files:
            soft = min(soft, self.open_files) if soft != resource.RLIM_INFINITY else self.open_files
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, self.open_files))

    def check(self, *, certainly: bool = False) -> dict[str, Any] | None:
        """Return the cause if the node has to end, or None while it keeps its limits. Call it several times a second.
        `certainly`: count in any case."""
        now, machine = time.monotonic(), _read_machine_use()
        if now < self._again_at and not certainly:
            return None
        refusals = self.group.count_refused_forks() if self.group else 0
        refused, self._refusals = refusals > self._refusals, refusals
        hurry = refused or self._may_have_passed(machine)
        if not (certainly or hurry or now >= self._count_at):
            return None
        try:
            with processes.raise_priority() if hurry else contextlib.nullcontext():
                return self._count(machine, refused=refused)
        finally:
            ended = time.monotonic()
            self._again_at = ended + min(REST_FACTOR * (ended - now), MAX_REST_SECONDS)
            self._count_at = ended + COUNT_PERIOD_SECONDS

    def forbid_new_processes(self) -> None:
        """Forbid further forks if the kernel limits the task's processes."""
        if self.group:
            self.group.forbid_forks()

    def close(self) -> None:
        """Leave the control group, once no rank is left."""
        if self.group:
            self.group.leave()

    def _may_have_passed(self, machine: ResourceUse) -> bool:
        grown = ResourceUse(*(own + new - old for own, new, old in zip(self._own, machine, self._before)))  # noqa: B905
        return (
            grown.threads >= min(self.processes, self.threads)
            or grown.open_files >= self.open_files
            or grown.memory >= (self.memory or NO_LIMIT)
        )

    def _count(self, machine: ResourceUse, *, refused: bool) -> dict[str, Any] | None:
        tree = processes.list_descendants()
        threads = sum(int(fields[17]) for fields in tree.values())
        if refused or len(tree) >= self.processes or threads >= self.threads:
            limits = {"processBound": self.processes, "threadBound": self.threads}
            about = {"processes": len(tree), "threads": threads, **limits}
            return self._told("PROCESS_BOUND_REACHED", tree, dict.fromkeys(tree, 1), about)
        resident = sum(
            int(fields[21]) * PAGE_BYTES for fields in tree.values()
        )  # shared pages as often as they are shared
        memory = _measure_memory(tree) if self.memory and resident >= self.memory else resident
        files = {pid: _count_open_files(pid) for pid in tree}
        self._before, self._own = machine, ResourceUse(threads, sum(files.values()), memory)
        if self._own.open_files >= self.open_files:
            about = {"files": self._own.open_files, "fileBound": self.open_files}
            return self._told("OPEN_FILE_BOUND_REACHED", tree, files, about)
        if self.memory and memory >= self.memory:
            each = {pid: int(fields[21]) for pid, fields in tree.items()}
            sizes = {"used": format_bytes(memory), "bound": format_bytes(self.memory)}
            return self._told("MEMORY_BOUND_REACHED", tree, each, sizes)
        return None

    def _told(
        self, code: str, tree: Mapping[int, list[bytes]], each: Mapping[int, int], about: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the cause with the rank whose processes have the largest share."""
        leaders, shares = self._leaders(), Counter[int]()
        ranks = map_processes_to_ranks(tree, leaders)
        for pid, share in each.items():
            if pid in ranks:
                shares[ranks[pid]] += share
        rank = shares.most_common(1)[0][0] if shares else min(leaders.values(), default=None)
        return {"code": code, "task": self.task, "rank": rank, **about}


def map_processes_to_ranks(tree: Mapping[int, Sequence[bytes]], leaders: Mapping[int, int]) -> dict[int, int]:
    """Return the rank of each process that descends from a rank's first process (`leaders`), or is in its session,
    which processes keep when their parent ends. `tree`: as `processes.list_descendants` returns it."""
    found = {}
    for pid in tree:
        above = pid
        while above in tree and above not in leaders:
            parent, session = int(tree[above][1]), int(tree[above][3])
            above = session if session in leaders else parent
        if above in leaders:
            found[pid] = leaders[above]
    return found


def read_max_threads() -> int:
    """Return how many processes and threads this machine, or a limit on this process, allows."""
    limits = [_read_number(f"/proc/sys/kernel/{name}") for name in ("pid_max", "threads-max")]
    limits += [_read_number(f"{folder}/pids.max") for folder in cgroups.list_own_groups()]
    return min((limit for limit in limits if limit), default=1 << 15)


def _choose_memory_limit(ordered: Any) -> int | None:
    """Return the limit in bytes, or None if memory is not counted."""
    if ordered is False:
        return None
    if ordered:
        return int(ordered)
    total = kernel.read_memory_limit()
    return int(total * DEFAULT_MEMORY_SHARE) if total else None


def _read_machine_use() -> ResourceUse:
    """Return the machine's use; what cannot be read counts as 0."""
    threads = open_files = memory = 0
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/loadavg", encoding="ascii") as file:
        threads = int(file.read().split()[3].partition("/")[2])
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/sys/fs/file-nr", encoding="ascii") as file:
        open_files = int(file.read().split()[0])
    with contextlib.suppress(OSError, ValueError), open("/proc/meminfo", encoding="ascii") as file:
        figures = dict(line.split(":", 1) for line in file)
        memory = (int(figures["MemTotal"].split()[0]) - int(figures["MemAvailable"].split()[0])) << 10
    return ResourceUse(threads, open_files, memory)


def _measure_memory(pids: Iterable[int]) -> int:
    """Return the private memory of these processes and their share of what they share with each other (smaps_rollup in
    proc(5)), without files, which the kernel can drop."""
    return sum(map(_read_proportional_memory, pids))


def _read_proportional_memory(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        figures = dict(line.split(":", 1) for line in list(file)[1:])
        if "Pss_Anon" in figures:
            return sum(int(figures[name].split()[0]) << 10 for name in ("Pss_Anon", "Pss_Shmem"))
        return int(figures["Pss"].split()[0]) << 10
    with contextlib.suppress(OSError, ValueError, KeyError):
        said = processes.read_status_fields(pid)
        return sum(int(said[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem"))
    return 0


def _count_open_files(pid: int) -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/fd"))
    return 0


def _read_number(path: str) -> int | None:
    with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:
        return int(file.read())
    return None
