"""Control groups (version 2) of tasks: the kernel limits all processes of a task on a machine together. Standard
library only, Python 3.9 or later.

    <parent>/            a group in which others can be created, with
      fermi-platform/    the platform's own processes, moved here (`divide_own_group`) so that the parent can be divided
      <attempt>/         all runners of the attempt on this machine, and their ranks

The parent is the group that was delegated to us: a systemd service with `DelegateSubgroup=fermi-platform`, a scope with
`Delegate=`, a container with a writable hierarchy. For root it is `/fermi` at the top, as the kubelet and Docker with
their cgroupfs drivers have `/kubepods` and `/docker` there. Rules: the kernel's Documentation/admin-guide/cgroup-v2.rst
("No Internal Process Constraint", "Delegation"), systemd's docs/CGROUP_DELEGATION.md.

A memory limit that is set on this process is never left: if one is set and our group was not delegated, no group is
created.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

PLATFORM_GROUP = "fermi-platform"
TOP_GROUP = "fermi"
LIMIT_FILES = {"memory": "memory.max", "pids": "pids.max"}
"""The file that holds the limit, by controller."""
MAX_TRIES = 3


class ControlGroup:
    """The control group of a task. `before`: the folder of the group that this process was in; `held`: the controllers
    whose limits apply."""

    def __init__(self, folder: str, before: str, held: frozenset[str]) -> None:
        self.folder, self.before, self.held = folder, before, held

    def count_refused_forks(self) -> int:
        """Return how many forks the process limit has refused."""
        return _read_figures(f"{self.folder}/pids.events").get("max", 0)

    def forbid_forks(self) -> None:
        """Set the process limit to 0."""
        with contextlib.suppress(OSError):
            _write(f"{self.folder}/{LIMIT_FILES['pids']}", "0")

    def leave(self) -> None:
        """Move this process back to its former group, and remove the task's group if it was the last process in it."""
        with contextlib.suppress(OSError):
            _write(f"{self.before}/cgroup.procs", "0")
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)


def join_group(name: str, limits: Mapping[str, int]) -> ControlGroup | None:
    """Move this process, and its future children, into the group `name` with `limits` by controller. Return the group,
    or None if none can be created."""
    found = _find_parent()
    if found is None:
        return None
    parent, own = found
    _remove_empty_groups(parent)
    folder = f"{parent}/{name}"
    for _ in range(MAX_TRIES):  # another runner may remove it while it is empty
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder)
            held = frozenset(one for one, value in limits.items() if _set_limit(folder, one, value))
            if held:
                _write(f"{folder}/cgroup.procs", "0")
                return ControlGroup(folder, own, held)
        except FileNotFoundError:
            continue
        except OSError:
            break
    with contextlib.suppress(OSError):
        os.rmdir(folder)
    return None


def divide_own_group() -> bool:
    """Move all processes of a group that was delegated to us one level down, so that groups of tasks can be created
    beside them. Return whether that is the case now. Call it before anything is started.

    A service is left unchanged: if it was divided and training still runs there, systemd could not start it again
    (systemd.resource-control(5), `DelegateSubgroup=`).
    """
    own = _find_own_group()
    if own is None or os.path.basename(own) == PLATFORM_GROUP or not _is_delegated(own):
        return own is not None and os.path.basename(own) == PLATFORM_GROUP
    inner = f"{own}/{PLATFORM_GROUP}"
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(inner)
        for pid in _read(f"{own}/cgroup.procs").split():
            with contextlib.suppress(ProcessLookupError):
                _write(f"{inner}/cgroup.procs", pid)
    except OSError:
        return False
    return _enable_controllers(own)


def list_own_groups() -> list[str]:
    """Return the folders of the groups that this process is in, the innermost first."""
    own = _find_own_group()
    return _list_ancestors(own, _find_mount()[0]) if own else []


def _find_parent() -> tuple[str, str] | None:
    """Return the folder in which groups can be created, and that of our own group."""
    own = _find_own_group()
    if own is None:
        return None
    if os.path.basename(own) == PLATFORM_GROUP:
        parent = os.path.dirname(own)
        return (parent, own) if _enable_controllers(parent) else None
    top = _find_mount()[0]
    if (
        os.geteuid()
        or _is_below_top(top)
        or any(_read_words(f"{one}/memory.max") - {"max"} for one in list_own_groups())
    ):
        return None
    if not _enable_controllers(top):
        return None
    parent = f"{top}/{TOP_GROUP}"
    with contextlib.suppress(OSError):
        os.mkdir(parent)
    return (parent, own) if _enable_controllers(parent) else None


def _is_delegated(folder: str) -> bool:
    """Return True for a systemd scope that is marked as delegated, and for the top of a namespace, which has the files
    of a group further down."""
    if not os.access(f"{folder}/cgroup.subtree_control", os.W_OK):
        return False
    if folder == _find_mount()[0]:
        return _is_below_top(folder)
    return folder.endswith(".scope") and (bool(os.geteuid()) or _is_marked(folder))


def _is_marked(folder: str) -> bool:
    for mark in ("trusted.delegate", "user.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(folder, mark) == b"1":
                return True
    return False


def _is_below_top(folder: str) -> bool:
    """Return False for the top of the hierarchy itself, which has no type."""
    return os.path.exists(f"{folder}/cgroup.type")


def _enable_controllers(folder: str) -> bool:
    """Enable the controllers and return whether groups in `folder` have at least one of them."""
    for controller in LIMIT_FILES:
        with contextlib.suppress(OSError):
            _write(f"{folder}/cgroup.subtree_control", f"+{controller}")
    return bool(LIMIT_FILES.keys() & _read_words(f"{folder}/cgroup.subtree_control"))


def _set_limit(folder: str, controller: str, value: int) -> bool:
    path = f"{folder}/{LIMIT_FILES[controller]}"
    if not os.path.exists(path):
        return False
    _write(path, str(value))
    return True


def _remove_empty_groups(parent: str) -> None:
    """Remove empty groups of runners that were killed."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name != PLATFORM_GROUP and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    os.rmdir(entry.path)


def _find_own_group() -> str | None:
    """Return the folder of this process's group, or None if version 2 is not mounted."""
    top, root = _find_mount()
    with contextlib.suppress(OSError), open("/proc/self/cgroup", encoding="utf-8") as file:
        path = next((line[3:].rstrip("\n") for line in file if line.startswith("0::")), None)
        if top and path is not None and f"{path}/".startswith(f"{root.rstrip('/')}/"):
            return (top + path[len(root.rstrip("/")) :]).rstrip("/")
    return None


def _find_mount() -> tuple[str, str]:
    """Return where version 2 is mounted, and which of its groups is visible there (proc_pid_mountinfo(5))."""
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            head, _, tail = line.partition(" - ")
            if tail.startswith("cgroup2 "):
                root, folder = head.split()[3:5]
                return folder, root
    return "", ""


def _list_ancestors(folder: str, top: str) -> list[str]:
    found = [folder]
    while folder != top and len(folder) > len(top):
        folder = os.path.dirname(folder)
        found.append(folder)
    return found


def _read_words(path: str) -> set[str]:
    with contextlib.suppress(OSError):
        return set(_read(path).split())
    return set()


def _read_figures(path: str) -> dict[str, int]:
    with contextlib.suppress(OSError, ValueError):
        return {name: int(value) for name, value in (line.split() for line in _read(path).splitlines())}
    return {}


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
