"""What runs in a container, as this machine sees it."""

import contextlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Found:
    """`pid`: this machine's; `inner`: the container's own, the same one where it has no pid namespace; `parent`: the
    container's own pid of the parent, 0 where that is outside."""

    pid: int
    inner: int
    parent: int
    command: tuple[str, ...]


def found_below(supervisor: int) -> list[Found]:
    """Living descendants, by their age."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
                if state not in (b"Z", b"X"):
                    parents[int(entry.name)] = int(parent)
    below = {supervisor}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    found = []
    for pid in sorted(below - {supervisor}):
        with contextlib.suppress(OSError):
            found.append(_described(pid, parents[pid]))
    return found


def _described(pid: int, parent: int) -> Found:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    numbers = _numbers(pid)
    above = _numbers(parent)
    return Found(pid, numbers[-1], above[-1] if len(above) == len(numbers) else 0, tuple(map(bytes.decode, words)))


def _numbers(pid: int) -> list[int]:
    """Its pids in its pid namespace and those around (proc_pid_status(5), NSpid)."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("NSpid:"):
            return [int(word) for word in line.split()[1:]]
    return [pid]
