"""A container's own view of this machine: its files, processes and host name. Standard library only, Python 3.9 or
later.

What runc makes of a container's bundle (opencontainers/runc, libcontainer/rootfs_linux.go). This machine stands in for
the image: what it has is there, and what the container writes goes to a layer of its own (overlayfs) that ends with it.
Of its own are also /proc, /dev, /tmp and /run, which begin empty, as of an image that has nothing there. /dev/shm is
the pod's (containerd, internal/cri/server/container_create.go: containerMounts). Volumes are bind mounts.

A plan: `folder`, an empty one of this machine's, to build in; `mounts`, `[{"source", "path", "readOnly"}]`; `keep`,
paths that the container needs wherever they are; `shm`, a folder; `hostname`; `readOnly`; `folders`, of the container's
own user; `mapped`: by a user namespace.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import stat

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 4, 8, 32, 4096, 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x4000000, 0x10000000, 0x20000000
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
PR_CAPBSET_DROP = 24
KEPT_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
"""CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, NET_RAW, SYS_CHROOT, MKNOD,
AUDIT_WRITE, SETFCAP: containerd, pkg/oci/spec.go (defaultUnixCaps)."""
MAX_CAPABILITY = 63
OWN = ("proc", "sys", "dev", "lost+found")
EMPTY = ("tmp", "run")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
WRITTEN = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")
"""What an engine mounts here if this machine is a container itself."""

libc = ctypes.CDLL(None, use_errno=True)


def leave(mapped: bool) -> None:
    """Takes namespaces for this process, and a pid namespace for its children. Raises OSError."""
    user, group = os.getuid(), os.getgid()
    _check(libc.unshare((CLONE_NEWUSER if mapped else 0) | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWPID), "unshare")
    if mapped:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)


def build(plan: dict, user: int, group: int) -> None:
    """To be called by the first process of the pid namespace. Raises OSError."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    base = plan["folder"]
    mount("tmpfs", base, "tmpfs", 0, "mode=0755")
    root = f"{base}/root"
    os.mkdir(root)
    mount(root, root, None, MS_BIND)
    overlays = [path for path in _tops(root, plan["keep"]) if _add(base, root, path)]
    _add_processes(root)
    _add_devices(root, plan)
    for one in sorted(plan["mounts"], key=lambda one: one["path"].count("/")):
        _add_volume(root, one)
    _write_names(root, plan["hostname"])
    for folder in plan["folders"]:
        if not os.path.isdir(root + folder):
            os.makedirs(root + folder)
            os.chown(root + folder, user, group)
    if plan["readOnly"]:
        for path in [*overlays, ""]:
            mount(None, root + path, None, MS_REMOUNT | MS_BIND | MS_RDONLY)
    libc.sethostname(plan["hostname"].encode(), len(plan["hostname"]))
    os.chdir(root)
    _check(libc.syscall(SYS_PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
    _check(libc.umount2(b".", MNT_DETACH), "umount")
    os.chdir("/")


def drop_capabilities() -> None:
    """All that containers have not, of this process and of what it becomes."""
    for number in range(MAX_CAPABILITY + 1):
        if number not in KEPT_CAPABILITIES:
            libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind, options or None)]
    _check(libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), f"mount {target}")


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _tops(root: str, keep: list[str]) -> list[str]:
    """Folders of this machine's root that the container sees."""
    found = []
    for name in sorted(os.listdir("/")):
        path = f"/{name}"
        if name in OWN:
            continue
        if os.path.islink(path):
            os.symlink(os.readlink(path), root + path)
        elif os.path.isdir(path):
            os.mkdir(root + path)
            if name in EMPTY and not any(one.startswith(f"{path}/") for one in keep):
                os.chmod(root + path, 0o1777 if name == "tmp" else 0o755)
            else:
                found.append(path)
    return found


def _add(base: str, root: str, path: str) -> bool:
    """True: with a layer of the container's own. Else nothing there can be changed."""
    upper, work = f"{base}/upper{path}", f"{base}/work{path}"
    os.makedirs(upper)
    os.makedirs(work)
    os.chmod(upper, stat.S_IMODE(os.stat(path).st_mode))
    options = f"lowerdir={path},upperdir={upper},workdir={work}"
    for more in ("", ",userxattr"):
        try:
            mount("overlay", root + path, "overlay", 0, options + more)
        except OSError:
            continue
        for point in sorted(_mounted()):
            if point.startswith(f"{path}/") and point not in WRITTEN:
                with contextlib.suppress(OSError):
                    bind(point, root + point, changes=False)
        return True
    bind(path, root + path, changes=False)
    return False


def bind(source: str, target: str, *, changes: bool) -> None:
    """`changes`: whether anything there can be changed."""
    mount(source, target, None, MS_BIND | MS_REC)
    if not changes:
        mounted = _mounted()
        around = max((point for point in mounted if _is_below(source, point)), key=len)
        below = {target + point[len(source) :]: flags for point, flags in mounted.items() if _is_below(point, source)}
        for point, flags in {target: mounted[around], **below}.items():
            mount(None, point, None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _mounted() -> dict[str, int]:
    """Mount points of this machine, and those of their flags that a user namespace must not lose."""
    known = {"ro": MS_RDONLY, "nosuid": MS_NOSUID, "nodev": MS_NODEV, "noexec": MS_NOEXEC}
    found = {}
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            words = line.split()
            point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), words[4])
            found[point] = sum(known.get(word, 0) for word in words[5].split(","))
    return found


def _add_processes(root: str) -> None:
    os.mkdir(f"{root}/proc")
    mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    os.mkdir(f"{root}/sys")
    bind("/sys", f"{root}/sys", changes=False)


def _add_devices(root: str, plan: dict) -> None:
    dev = f"{root}/dev"
    os.mkdir(dev)
    mount("tmpfs", dev, "tmpfs", MS_NOSUID, "mode=0755")
    for name in filter(lambda name: os.path.exists(f"/dev/{name}"), DEVICES):
        _make_file(f"{dev}/{name}")
        bind(f"/dev/{name}", f"{dev}/{name}", changes=True)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"),
                         ("stderr", "/proc/self/fd/2"), ("ptmx", "pts/ptmx")):  # fmt: skip
        os.symlink(target, f"{dev}/{name}")
    os.mkdir(f"{dev}/pts")
    mount("devpts", f"{dev}/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
    os.mkdir(f"{dev}/shm")
    bind(plan["shm"], f"{dev}/shm", changes=True)


def _add_volume(root: str, one: dict) -> None:
    target = root + one["path"]
    if os.path.isdir(one["source"]):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        _make_file(target)
    bind(one["source"], target, changes=not one["readOnly"])


def _make_file(path: str) -> None:
    with open(path, "a", encoding="ascii"):
        pass


def _write_names(root: str, hostname: str) -> None:
    """As kubelets do (pkg/kubelet/kubelet_pods.go: managedHostsFileContent): a pod finds itself by its name."""
    with contextlib.suppress(OSError):
        with open(f"{root}/etc/hostname", "w", encoding="utf-8") as file:
            file.write(f"{hostname}\n")
        with open(f"{root}/etc/hosts", "w", encoding="utf-8") as file:
            file.write(f"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.0.1\t{hostname}\n")
