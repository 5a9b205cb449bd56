"""A file system view for one task: a mount namespace whose root has the paths that the task was given and nothing else.
Standard library only, Python 3.9 or later.

Landlock decides which contents a process may read and write. It does not cover sockets that have a path (a session bus,
a tmux server, a container engine: each runs programs for its clients), modes, owners and times of files, and names.
What is not in the view has none of these, and what is readable is mounted read-only.

    /usr /opt /etc /proc /sys /dev …   of the system, read-only (except /proc: see `make_view`)
    /tmp /var/tmp                      a folder of the task's own
    /dev/shm                           a tmpfs of its own, as large as the system's
    /srv/fermi/checkpoints/task-x …    what it was given, each at its own path

Root creates the namespace directly (CAP_SYS_ADMIN); another user inside of a user namespace that maps only that user,
where the system allows it (user_namespaces(7); Debian and Ubuntu have switches that forbid it). A child process creates
it, so that the runner stays outside; ranks join it (setns(2)) and lose all capabilities there.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NoReturn

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_BIND, MS_REC, MS_SLAVE, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1 << 12, 1 << 14, 1 << 19, 2, 4, 8
MNT_DETACH = 2
MOUNT_SETATTR, MOUNT_ATTR_RDONLY, AT_FDCWD, AT_RECURSIVE = 442, 1, -100, 0x8000
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
SYSTEM_FOLDERS = (
    "/bin",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/proc",
    "/sbin",
    "/sys",
    "/usr",
)
"""Included as a whole; Landlock decides what of them may be read."""
PRIVATE_FOLDERS, PRIVATE_MODE = ("/tmp", "/var/tmp", "/dev/shm"), "private"
"""Folders that every program may write to: the task has its own."""
MAX_LINKS = 40
"""As many as the kernel follows on one path (path_resolution(7))."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class ViewError(OSError):
    """The view cannot be created on this machine; `strerror` has the step that failed and why."""


class FileSystemView:
    """Descriptors of the namespaces; `shared_memory` and `processes` are its /dev/shm and /proc, for rules of Landlock.
    `user` is -1 if root created it. `maker`: the process that has created them."""

    def __init__(self, maker: int, mount: int, shared_memory: int, processes: int, user: int = -1) -> None:
        self.maker = maker
        self.mount, self.shared_memory, self.processes, self.user = mount, shared_memory, processes, user

    def enter(self) -> None:
        """Move this process, which has one thread, into the view; its working directory is the root then. Raises
        OSError."""
        for descriptor, kind in ((self.user, CLONE_NEWUSER), (self.mount, CLONE_NEWNS)):
            if descriptor >= 0 and _libc.setns(descriptor, kind):
                raise _build_error("joining the view")
        self.close()

    def close(self) -> None:
        """Close the descriptors. The namespaces live as long as a process is in them. The process that has created
        them is collected, unless it was before: until then it is not waited for, because the end of a process that was
        forked with the training stack takes a while."""
        if self.maker:
            with suppress(ChildProcessError):
                os.waitpid(self.maker, 0)
            self.maker = 0
        for descriptor in (self.mount, self.shared_memory, self.processes, self.user):
            if descriptor >= 0:
                with suppress(OSError):
                    os.close(descriptor)
        self.mount = self.shared_memory = self.processes = self.user = -1


def make_view(paths: Mapping[str, str], named: Iterable[str], temporary: str) -> FileSystemView:
    """Return a view of `paths` (real paths with their access: "r", "rw", "rwm"; "" hides what is below) and of the
    system's folders. `named`: paths as they are written elsewhere; symbolic links in them are created again.
    `temporary`: the folder that becomes /tmp; a folder `root` in it is created for the time.

    If `paths` has "rw" for /proc, the files of processes can be written to there and nothing else; if root creates the
    view and the kernel supports it (Linux 5.8), it lacks processes that may not be traced (`hidepid=ptraceable`).
    Raises ViewError.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pid = os.fork()
        if pid == 0:
            _send_namespaces(theirs, paths, named, temporary)
        theirs.close()
        try:
            said, descriptors, _, _ = socket.recv_fds(ours, 4096, 4)
        finally:
            with suppress(OSError):
                os.rmdir(os.path.join(temporary, "root"))
    if len(descriptors) < 3:
        os.waitpid(pid, 0)
        number, _, what = said.decode(errors="replace").partition(" ")
        raise ViewError(int(number or 0), what or "the process that makes the view ended")
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return FileSystemView(pid, *descriptors)


def _send_namespaces(stream: socket.socket, paths: Mapping[str, str], named: Iterable[str], temporary: str) -> NoReturn:
    """Create the namespaces in a child process and send their descriptors."""
    try:
        is_user = _unshare()
        _make_root(paths, named, temporary)
        folders = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in ("/dev/shm", "/proc")]
        kept = [os.open("/proc/self/ns/mnt", os.O_RDONLY), *folders]
        if is_user:
            kept.append(os.open("/proc/self/ns/user", os.O_RDONLY))
        socket.send_fds(stream, [b"0 "], kept)
    except OSError as error:
        with suppress(OSError):
            stream.send(f"{error.errno or 0} {error.strerror or error}".encode()[:4000])
    except BaseException as error:
        with suppress(OSError):
            stream.send(f"0 {type(error).__name__}: {error}".encode()[:4000])
    os._exit(0)


def _unshare() -> bool:
    """Create the namespaces, and return True if a user namespace was needed."""
    if _libc.unshare(CLONE_NEWNS) == 0:
        return False
    uid, gid = os.geteuid(), os.getegid()
    _libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: else /proc/self belongs to root
    if _libc.unshare(CLONE_NEWNS | CLONE_NEWUSER):
        raise _build_error("a user namespace")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    return True


def _make_root(paths: Mapping[str, str], named: Iterable[str], temporary: str) -> None:
    shown = {path: "r" for path in SYSTEM_FOLDERS if os.path.isdir(path) and not os.path.islink(path)}
    shown.update({"/dev": "rw"}, **dict.fromkeys(PRIVATE_FOLDERS, PRIVATE_MODE), **paths)
    links = dict(link for path in (*_list_top_links(), *named) for link in find_links(path).items())
    size = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    large = f"mode=1777,size={size.f_blocks * size.f_frsize}" if size and size.f_blocks else "mode=1777"
    root = os.path.join(temporary, "root")
    os.mkdir(root, 0o700)
    _mount(None, "/", None, MS_REC | MS_SLAVE)
    _mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=4m")
    empty = [root]
    for path in sorted(shown, key=len):
        mode, above = shown[path], _find_mode_above(path, shown)
        if mode == above or not (mode or above):
            continue
        is_folder = mode == PRIVATE_MODE or os.path.isdir(path)
        target = _make_target(root, path, is_folder)
        if path == "/dev/shm" and mode == PRIVATE_MODE:
            _mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, large)
        elif path == "/proc" and "w" in mode:
            _mount_proc(target)
        elif mode:
            try:
                _mount(
                    temporary if mode == PRIVATE_MODE else path, target, None, MS_BIND | MS_REC * (mode != PRIVATE_MODE)
                )
            except ViewError:
                if mode != "r":
                    raise
                continue  # a file server that is away: the task finds nothing there
            if path == "/dev" or (mode != PRIVATE_MODE and "m" not in mode):
                # Devices, sockets and what is open already (a rank's log) are written to all the same.
                _set_read_only(target, recursive=path != "/dev")
        elif is_folder:
            _mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64k")
            empty.append(target)
        else:
            _mount("/dev/null", target, None, MS_BIND)
    for path, leads_to in links.items():
        with suppress(OSError):  # shown already, by what lies above it
            os.makedirs(os.path.dirname(root + path), 0o755, exist_ok=True)
            os.symlink(leads_to, root + path)
    for target in empty:
        _set_read_only(target, recursive=False)
    os.chdir(root)
    if _pivot_root():
        raise _build_error("pivot_root")
    if _libc.umount2(b".", MNT_DETACH):
        raise _build_error("leaving the old root")
    os.chdir("/")


def _mount_proc(target: str) -> None:
    """Mount /proc so that only files of processes can be written to: all other entries are mounted read-only as they
    are here (a container may cover parts of them)."""
    hides = MS_NOSUID | MS_NODEV | MS_NOEXEC
    if _libc.mount(b"proc", os.fsencode(target), b"proc", ctypes.c_ulong(hides), b"hidepid=ptraceable"):
        _mount("/proc", target, None, MS_BIND | MS_REC)  # in a user namespace, or before Linux 5.8
    with os.scandir("/proc") as entries:
        for entry in entries:
            if not (entry.name.isdigit() or entry.is_symlink()):
                with suppress(ViewError):  # gone meanwhile, or one that only the host's /proc has
                    _mount(entry.path, target + "/" + entry.name, None, MS_BIND | MS_REC)
                _set_read_only(target + "/" + entry.name, recursive=True)


def find_links(path: str) -> dict[str, str]:
    """Return the symbolic links on the way along `path` (absolute), each with its target as written: they have to be
    created again if only the end of the path is mounted."""
    found: dict[str, str] = {}
    at, rest = "/", [part for part in path.split("/") if part]
    while rest and len(found) < MAX_LINKS:
        part = rest.pop(0)
        if part == "..":
            at = os.path.dirname(at)
            continue
        here = os.path.join(at, part)
        if part == "." or here in found:
            continue
        try:
            leads_to = os.readlink(here)
        except OSError:
            at = here
            continue
        found[here] = leads_to
        at = "/" if leads_to.startswith("/") else at
        rest = [step for step in leads_to.split("/") if step] + rest
    return found


def _list_top_links() -> list[str]:
    with os.scandir("/") as entries:
        return [entry.path for entry in entries if entry.is_symlink()]


def _find_mode_above(path: str, shown: Mapping[str, str]) -> str:
    """Return the access of the nearest folder above, or an empty string."""
    while path != "/":
        path = os.path.dirname(path)
        if path in shown:
            return "" if shown[path] == PRIVATE_MODE else shown[path]
    return ""


def _make_target(root: str, path: str, is_folder: bool) -> str:
    target = root + path
    if not os.path.lexists(target):
        os.makedirs(target if is_folder else os.path.dirname(target), 0o755, exist_ok=True)
        if not is_folder:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    return target


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    words = [word if word is None else os.fsencode(word) for word in (source, target, kind)]
    if _libc.mount(*words, ctypes.c_ulong(flags), data.encode() or None):
        raise _build_error(f"mounting {target}")


def _set_read_only(target: str, *, recursive: bool) -> None:
    """Add read-only to the attributes of the mount, so that nothing locked by an outer namespace is changed
    (mount_setattr(2), Linux 5.12, which every kernel with Landlock has). Without it, only Landlock protects contents.
    """
    attributes = struct.pack("=QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
    _libc.syscall(
        ctypes.c_long(MOUNT_SETATTR), ctypes.c_int(AT_FDCWD), os.fsencode(target),
        ctypes.c_uint(AT_RECURSIVE if recursive else 0), attributes, ctypes.c_size_t(len(attributes)),
    )  # fmt: skip


def _pivot_root() -> int:
    """Stack the new root on top of the old one, which is then unmounted from below it (pivot_root(2))."""
    if number := PIVOT_ROOT.get(platform.machine()):
        return int(_libc.syscall(ctypes.c_long(number), b".", b"."))
    return int(_libc.pivot_root(b".", b"."))


def _build_error(what: str) -> ViewError:
    number = ctypes.get_errno()
    return ViewError(number, f"{what}: {os.strerror(number)}")
