"""Control groups (version 2) of tasks: the kernel holds all of a task's processes on a machine to a limit. Standard
library only, Python 3.9 or later.

    <parent>/            where groups may be made, one of
      fermi-platform/      ours: what starts tasks moved here (`divide_own`), so that the parent may be divided
      <attempt>/           all runners of the attempt on this machine, and their ranks

The parent is the group that was delegated to us: a systemd service with `DelegateSubgroup=fermi-platform`, a scope with
`Delegate=`, a container with a writable hierarchy. For root it is `/fermi` at the top, as the kubelet and Docker with
their cgroupfs drivers have `/kubepods` and `/docker` there. Rules: the kernel's
Documentation/admin-guide/cgroup-v2.rst ("No Internal Process Constraint", "Delegation"), systemd's
docs/CGROUP_DELEGATION.md.

A limit of memory that somebody has set on us is never left: where one holds, and our group was not delegated, no group
is made.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

PLATFORM = "fermi-platform"
TOP = "fermi"
LIMITS = {"memory": "memory.max", "pids": "pids.max"}
"""By controller, the file of its limit."""
MAX_TRIES = 3


class Group:
    """A task's. `before`: the folder of the group that this process was in."""

    def __init__(self, folder: str, before: str, held: frozenset[str]) -> None:
        self.folder, self.before, self.held = folder, before, held

    def refused_forks(self) -> int:
        """How often the limit of processes was met."""
        return _figures(f"{self.folder}/pids.events").get("max", 0)

    def forbid_forks(self) -> None:
        with contextlib.suppress(OSError):
            _write(f"{self.folder}/{LIMITS['pids']}", "0")

    def leave(self) -> None:
        """Goes back to where this process came from, and removes the group if it was the last one in it."""
        with contextlib.suppress(OSError):
            _write(f"{self.before}/cgroup.procs", "0")
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)


def join(name: str, limits: Mapping[str, int]) -> Group | None:
    """Puts this process, and what it starts from now on, into the group `name`, with `limits` by controller. Returns
    None where no group may be made. `held` of the group says which limits hold."""
    found = _find_parent()
    if found is None:
        return None
    parent, own = found
    _remove_empty(parent)
    folder = f"{parent}/{name}"
    for _ in range(MAX_TRIES):  # another runner may remove it while it is empty
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder)
            held = frozenset(one for one, value in limits.items() if _limit(folder, one, value))
            if held:
                _write(f"{folder}/cgroup.procs", "0")
                return Group(folder, own, held)
        except FileNotFoundError:
            continue
        except OSError:
            break
    with contextlib.suppress(OSError):
        os.rmdir(folder)
    return None


def divide_own() -> bool:
    """Where the group of this process was delegated to us: moves all of its processes one level down, so that groups of
    tasks can be made beside them. Returns whether it did. To be called before anything is started.

    A service is left as it is: once it was divided, and training still runs there, systemd could not start it again
    (systemd.resource-control(5), `DelegateSubgroup=`)."""
    own = _own()
    if own is None or os.path.basename(own) == PLATFORM or not _is_delegated(own):
        return own is not None and os.path.basename(own) == PLATFORM
    inner = f"{own}/{PLATFORM}"
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(inner)
        for pid in _read(f"{own}/cgroup.procs").split():
            with contextlib.suppress(ProcessLookupError):
                _write(f"{inner}/cgroup.procs", pid)
    except OSError:
        return False
    return _enable(own)


def own_folders() -> list[str]:
    """Of the groups that this process is in, the innermost first."""
    own = _own()
    return _upwards(own, _mount()[0]) if own else []


def _find_parent() -> tuple[str, str] | None:
    """The folder in which groups may be made, and that of our own group."""
    own = _own()
    if own is None:
        return None
    if os.path.basename(own) == PLATFORM:
        parent = os.path.dirname(own)
        return (parent, own) if _enable(parent) else None
    top = _mount()[0]
    if os.geteuid() or _is_below_top(top) or any(_words(f"{one}/memory.max") - {"max"} for one in own_folders()):
        return None
    if not _enable(top):
        return None
    parent = f"{top}/{TOP}"
    with contextlib.suppress(OSError):
        os.mkdir(parent)
    return (parent, own) if _enable(parent) else None


def _is_delegated(folder: str) -> bool:
    """A scope of systemd's that says so, or the top of a namespace, which has the files of a group that is below."""
    if not os.access(f"{folder}/cgroup.subtree_control", os.W_OK):
        return False
    if folder == _mount()[0]:
        return _is_below_top(folder)
    return folder.endswith(".scope") and (bool(os.geteuid()) or _is_marked(folder))


def _is_marked(folder: str) -> bool:
    for mark in ("trusted.delegate", "user.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(folder, mark) == b"1":
                return True
    return False


def _is_below_top(folder: str) -> bool:
    """The hierarchy's own top has no type."""
    return os.path.exists(f"{folder}/cgroup.type")


def _enable(folder: str) -> bool:
    """Whether groups in `folder` have at least one of the controllers."""
    for controller in LIMITS:
        with contextlib.suppress(OSError):
            _write(f"{folder}/cgroup.subtree_control", f"+{controller}")
    return bool(LIMITS.keys() & _words(f"{folder}/cgroup.subtree_control"))


def _limit(folder: str, controller: str, value: int) -> bool:
    path = f"{folder}/{LIMITS[controller]}"
    if not os.path.exists(path):
        return False
    _write(path, str(value))
    return True


def _remove_empty(parent: str) -> None:
    """What runners left that were killed. A group with processes stays."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name != PLATFORM and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    os.rmdir(entry.path)


def _own() -> str | None:
    """The folder of this process' group; None where version 2 is not mounted."""
    top, root = _mount()
    with contextlib.suppress(OSError), open("/proc/self/cgroup", encoding="utf-8") as file:
        path = next((line[3:].rstrip("\n") for line in file if line.startswith("0::")), None)
        if top and path is not None and f"{path}/".startswith(f"{root.rstrip('/')}/"):
            return (top + path[len(root.rstrip("/")) :]).rstrip("/")
    return None


def _mount() -> tuple[str, str]:
    """Where version 2 is mounted, and which of its groups is seen there (proc_pid_mountinfo(5))."""
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            head, _, tail = line.partition(" - ")
            if tail.startswith("cgroup2 "):
                root, folder = head.split()[3:5]
                return folder, root
    return "", ""


def _upwards(folder: str, top: str) -> list[str]:
    found = [folder]
    while folder != top and len(folder) > len(top):
        folder = os.path.dirname(folder)
        found.append(folder)
    return found


def _words(path: str) -> set[str]:
    with contextlib.suppress(OSError):
        return set(_read(path).split())
    return set()


def _figures(path: str) -> dict[str, int]:
    with contextlib.suppress(OSError, ValueError):
        return {name: int(value) for name, value in (line.split() for line in _read(path).splitlines())}
    return {}


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
