"""The sandbox of ranks: Landlock, another user, a file system view of their own, or all of these. Standard library
only, Python 3.9.

**Nothing is allowed that is not named.** The rules stand in a node's spec:

    "confine": {"own": ["/srv/fermi/checkpoints/task-x"], "home": "/srv/fermi/homes/nlp", "landlock": true,
                "view": true,
                "paths": {"/srv/fermi": "", "/srv/fermi/datasets": "r", "/srv/fermi/workspace": "rwm"},
                "user": {"uid": 61000, "gid": 61000, "groups": [44], "name": "fermi-tasks"}}

`own`: folders that are created if missing, and belong to the ranks; `home` is one, and HOME. Of a path in `paths` (`~`
is the user's home), `r` allows to read, `w` to write to existing files, `m` to create and remove entries (so no link
can be put where the platform will read). The longest matching path decides; if several names lead to one place, the one
that allows more does. `landlock`: the kernel restricts processes to these paths; `view`: they have a file system with
these paths alone (`mounts.py`). Without `user` the ranks keep the runner's. `optional`: what this machine does not
support is left out and listed in `gaps`; otherwise no rank starts then.

Added to the paths is what any training needs of a machine (`build_system_paths`): programs and libraries, some of /etc,
the interpreter, devices; a folder of their own in place of /tmp. If no view can be created, TMPDIR names that folder,
and /dev/shm is shared with other programs of the user.

Landlock only ever allows, and what it allows of a folder it allows of all below. So a folder with something forbidden
below is not allowed itself: its entries are, one by one. Entries that appear there later are inaccessible. Names can be
listed everywhere that a view shows, and programs run (which takes reading anyway): only contents are protected.

A process in such a domain can neither trace nor signal processes outside of it, nor mount anything, nor gain rights by
executing a set-uid program (see landlock(7)). Nor can it change the limits, priority or processors of other processes
(see `seccomp.py`).
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import site
import stat
import struct
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from fermi.runner import mounts, seccomp

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same on every architecture
VERSION_FLAG, PATH_BENEATH = 1, 1
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 4, 24, 38
SCOPE_SIGNAL = 1 << 1
"""Without abstract sockets: NCCL's ranks, each in its own domain, pass memory to each other through them."""

WRITE_FILE, READ_FILE, TRUNCATE = 1 << 1, 1 << 2, 1 << 14
MANAGE_RIGHTS = sum(1 << bit for bit in range(4, 13))
REFER = 1 << 13
FILE_RIGHTS = WRITE_FILE | READ_FILE | TRUNCATE

READABLE_FOLDERS = (
    "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/opt", "/nix/store", "/gnu/store", "/proc", "/sys",
    "/run/systemd/resolve", "/run/NetworkManager/resolv.conf", "/run/resolvconf", "/run/nscd", "/var/lib/sss/mc",
    "/var/lib/sss/pipes", "/var/cache/fontconfig", "/run/nvidia-persistenced", "/run/nvidia-fabricmanager",
)  # fmt: skip
"""Programs and libraries (file-hierarchy(7)), what the kernel tells, where names of hosts and users are looked up."""
READABLE_SETTINGS = (
    "OpenCL", "X11", "alternatives", "bash.bashrc", "bash_completion.d", "bashrc", "ca-certificates",
    "ca-certificates.conf", "conda", "debian_version", "environment", "fonts", "gai.conf", "gitconfig", "group",
    "host.conf", "hostname", "hosts", "inputrc", "jupyter", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
    "libibverbs.d", "libnl-3", "locale.alias", "locale.conf", "localtime", "lsb-release", "machine-id", "magic",
    "mime.types", "mtab", "nccl.conf", "networks", "nsswitch.conf", "nvidia", "nvidia-container-runtime", "openmpi",
    "os-release", "passwd", "pip.conf", "pki/ca-trust", "pki/tls/cert.pem", "pki/tls/certs", "profile", "profile.d",
    "protocols", "pulse", "rdma", "resolv.conf", "services", "shells", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf",
    "terminfo", "timezone", "ucx", "vulkan", "xdg", "zsh", "zshrc",
)  # fmt: skip
"""Of /etc. Not included: passwords, keys of the host and of services."""
DEVICE_NAMES = ("full", "fuse", "null", "ptmx", "pts", "random", "tty", "urandom", "zero")
ACCELERATOR_PREFIXES = (
    "accel", "cambricon", "davinci", "devmm_svm", "dma_heap", "dri", "gdrdrv", "hisi_hdc", "infiniband", "kfd", "knem",
    "nvidia", "udmabuf", "xpmem",
)  # fmt: skip
"""Of /dev, the names above and these prefixes: no disk, no memory, no console."""
NVIDIA_CONTROL = "/dev/nvidiactl"
"""If it exists, processes may write to the files of processes below /proc: CUDA's driver names its threads by
fopen("/proc/self/task/<id>/comm", "w"), and if that is refused cuInit fails with CUDA_ERROR_OPERATING_SYSTEM (304).
Seen with driver 580.159; NVIDIA/OpenShell's issue 1486 says the same. Decision 87 has what this opens."""
MPS_PIPES = "/tmp/nvidia-mps"
"""Where CUDA's multi-process service listens by default (CUDA_MPS_PIPE_DIRECTORY)."""

KEPT_CAPABILITIES = {0, 1, 3, 4, 5, 6, 7, 10, 13, 14, 23, 24}
"""What root keeps in a domain: to change owners, ignore modes, own any file, signal, change its user, open low ports
and raw sockets, lock memory, set priorities and limits. Not: reading by file handle (CAP_DAC_READ_SEARCH), other
processes (CAP_SYS_PTRACE, and CAP_PERFMON, which suffices to read their environment), devices, modules, mounts."""

_REFUSED_PATTERN = re.compile(r"\[Errno (?P<number>2|13|30)\] [^:]{1,60}: '(?P<path>/[^']+)'")
"""An `OSError` of a path (ENOENT, EACCES, EROFS): a hidden path does not exist in a view, and a readable one is on a
read-only file system."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def read_landlock_abi() -> int:
    """Return the Landlock version of this kernel; 0 = none, or it is turned off."""
    found = _libc.syscall(ctypes.c_long(CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint32(VERSION_FLAG))
    return max(0, int(found))


def _compute_rights(mode: str, abi: int) -> int:
    """Return the Landlock rights of a mode; `rwm` is all that a ruleset handles."""
    written = WRITE_FILE | (TRUNCATE if abi >= 3 else 0)
    made = MANAGE_RIGHTS | (REFER if abi >= 2 else 0)
    return READ_FILE * ("r" in mode) | written * ("w" in mode) | made * ("m" in mode)


def build_system_paths() -> dict[str, str]:
    """Return the paths, with access, that training needs of any machine and of the interpreter that this process runs
    with."""
    names = {os.path.basename(path): path for path in _list_entries("/dev")}
    devices = [path for name, path in names.items() if name in DEVICE_NAMES or name.startswith(ACCELERATOR_PREFIXES)]
    return {
        **dict.fromkeys(READABLE_FOLDERS, "r"),
        **dict.fromkeys([f"/etc/{name}" for name in READABLE_SETTINGS], "r"),
        **dict.fromkeys(list_python_paths(), "r"),
        **dict.fromkeys(devices, "rw"),
        MPS_PIPES: "rw",
    }


def make_gpu_devices() -> None:
    """Have the driver's own program create the device that CUDA opens first, if CUDA was not used since boot: ranks
    cannot, because set-uid programs do not help them (nvidia-modprobe(1))."""
    if os.path.exists("/dev/nvidiactl") and not os.path.exists("/dev/nvidia-uvm"):
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["nvidia-modprobe", "-u", "-c=0"], check=False, capture_output=True, timeout=10)


def list_program_folders(env: Mapping[str, str]) -> list[str]:
    """Return the folders of PATH and of libraries (ld.so(8)), and of CUDA's toolkit, which kernel compilers look for;
    except those that have the user's whole home in them."""
    home = os.path.realpath(os.path.expanduser("~"))
    named = [
        env.get("PATH", os.defpath),
        *(env.get(name, "") for name in ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")),
    ]
    found = [os.path.realpath(path) for path in os.pathsep.join(named).split(os.pathsep) if os.path.isabs(path)]
    return [path for path in found if path != home and not _is_below(home, path)]


def list_python_paths() -> list[str]:
    """Return the folders of this interpreter and of its packages, including those of its user."""
    known = sysconfig.get_paths()
    found = [sys.prefix, sys.base_prefix, sys.exec_prefix, *(known[name] for name in ("stdlib", "purelib", "platlib"))]
    found += [os.path.dirname(os.path.realpath(sys.executable))]
    found += [path for path in sys.path if path.endswith(("-packages", ".zip"))]
    return [path for path in dict.fromkeys(found) if path not in ("", "/")]


def drop_all_capabilities() -> None:
    """Drop all capabilities, which a process has in its own user namespace. Raises OSError."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0))
    if _libc.capset(header, ctypes.create_string_buffer(24)):
        raise OSError(ctypes.get_errno(), "capabilities")


def drop_capabilities() -> None:
    """Drop all capabilities except KEPT_CAPABILITIES. Raises OSError."""
    with open("/proc/sys/kernel/cap_last_cap", encoding="utf-8") as file:
        last = int(file.read())
    for number in set(range(last + 1)) - KEPT_CAPABILITIES:
        _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    kept = sum(1 << number for number in KEPT_CAPABILITIES)
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0))
    data = ctypes.create_string_buffer(24)
    if _libc.capget(header, data):
        raise OSError(ctypes.get_errno(), "capabilities")
    _, low, _, _, high, _ = struct.unpack("=6I", data.raw)
    low, high = low & kept & 0xFFFFFFFF, high & kept >> 32
    data = ctypes.create_string_buffer(struct.pack("=6I", low, low, 0, high, high, 0), 24)
    if _libc.capset(header, data):
        raise OSError(ctypes.get_errno(), "capabilities")


def expand_paths(paths: Mapping[str, str]) -> tuple[dict[str, str], set[str]]:
    """Return what to allow, with real paths as keys, and the folders that are only allowed entry by entry."""
    allowed: dict[str, str] = {}
    opened: set[str] = set()

    def walk(path: str, inherited: str, named: Collection[str]) -> None:
        """`named`: those of the paths that lie below, or are this one."""
        mode, start = paths.get(path, inherited), path.rstrip("/") + "/"
        below = [name for name in named if name != path and name.startswith(start)]
        if all(set(mode) <= set(paths[name]) for name in below):
            if mode:
                allowed[path] = mode
            for name in sorted(below, key=len):
                walk(name, mode, below)
            return
        opened.add(path)
        on_the_way = {start + name[len(start) :].partition("/")[0] for name in below}
        for name in _list_entries(path):
            if name in on_the_way:
                walk(name, mode, below)
            elif mode:  # of the hundreds of entries that a folder may have, most are no more than that
                allowed[name] = mode

    walk("/", "", paths)
    return allowed, opened


def _is_read_only(path: str) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def _list_entries(path: str) -> Iterator[str]:
    """Yield the entries of a folder except links: their targets are elsewhere."""
    with suppress(OSError), os.scandir(path) as found:
        for entry in found:
            if not entry.is_symlink():
                yield entry.path


def resolve_paths(paths: Mapping[str, str]) -> dict[str, str]:
    """Return the paths with links followed, including links that lead out of a forbidden folder; paths that do not
    exist are left out."""
    found: dict[str, str] = {}
    for path, mode in paths.items():
        if os.path.exists(path):
            place = os.path.realpath(path)
            found[place] = max(found.get(place, ""), mode, key=len)
    for folder in [path for path, mode in found.items() if not mode and os.path.isdir(path)]:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink() and not _is_below(folder, os.path.realpath(entry.path)):
                    found.setdefault(os.path.realpath(entry.path), "")
    return found


class Sandbox:
    """Created by the runner, entered by each rank. What fails is raised by `enter`, so that it stands in a rank's
    log."""

    def __init__(self, order: Mapping[str, Any], name: str, env: Mapping[str, str]) -> None:
        """`env`: of the platform's own process, for PATH and TMPDIR; never what a task asks for."""
        self.user: Mapping[str, Any] | None = order.get("user")
        self.env: dict[str, str] = {}
        self.temporary = ""
        self.ruleset = -1
        self.view: mounts.FileSystemView | None = None
        self._own_threads = False
        self._given: dict[str, str] = {}
        self.failure: OSError | None = None
        self.gaps: list[str] = []
        self._optional = bool(order.get("optional"))
        home = order.get("home") or (self.user or {}).get("home")
        try:
            for path in [*order["own"], *([home] if home else [])]:
                self._try(self._own, path)
            if self._optional and home and not os.access(home, os.W_OK | os.X_OK):
                home = None  # its temporary folder instead
            self._set_environment(home, name, env)
            make_gpu_devices()
            paths = {
                **build_system_paths(),
                **dict.fromkeys(list_program_folders(env), "r"),
                **({"/proc": "rw"} if os.path.exists(NVIDIA_CONTROL) else {}),
                **{os.path.expanduser(path): mode for path, mode in order.get("paths", {}).items()},
                **({home: "rwm"} if home else {}),
            }
            found = resolve_paths(paths)
            self._given = {**paths, **found, self.temporary: "rwm"} if "paths" in order else {}
            if order.get("view"):
                self._try(self._make_view, found, [path for path in paths if path not in found])
            if "paths" in order and order.get("landlock", True):
                self._try(self._make_ruleset, found)
        except OSError as error:
            self.failure = error

    def _try(self, step: Callable[..., None], *arguments: Any) -> None:
        """Run a step. Raises OSError, unless the sandbox is optional."""
        try:
            step(*arguments)
        except OSError as error:
            if not self._optional:
                raise
            self.gaps.append(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))

    def _make_view(self, found: Mapping[str, str], named: list[str]) -> None:
        self.view = mounts.make_view(found, named, self.temporary)
        self.env["TMPDIR"] = "/tmp"

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that a rank inherits: folders of another user are not its own."""
        kept = {key: value for key, value in inherited.items() if not key.startswith("XDG_")}
        kept.pop("TORCHINDUCTOR_CACHE_DIR", None)  # torch put it there when it was imported
        return {**kept, **self.env}

    def _own(self, path: str) -> None:
        """Create a folder and give it to the rank's user if it is the runner's (and is where only the runner's user can
        put it)."""
        os.makedirs(path, exist_ok=True)
        if self.user and os.stat(path).st_uid == os.getuid():
            os.chown(path, self.user["uid"], self.user["gid"])

    def _set_environment(self, home: str | None, name: str, env: Mapping[str, str]) -> None:
        """Set a home and a temporary folder of its own. Packages that were installed for the user are still found."""
        folder = os.path.realpath(env.get("TMPDIR") or "/tmp")
        self.temporary = tempfile.mkdtemp(prefix=f"fermi-{name[-20:]}-", dir=folder if os.path.isdir(folder) else None)
        if self.user:
            os.chown(self.temporary, self.user["uid"], self.user["gid"])
            self.env.update(USER=self.user["name"], LOGNAME=self.user["name"])
        self.env["TMPDIR"] = self.temporary
        if self._optional and not home:
            self.env["HOME"] = self.temporary
        if home:
            self.env.update(HOME=home, TORCHINDUCTOR_CACHE_DIR=os.path.join(home, ".cache", "torchinductor"))
            self.env["TRITON_HOME"] = home  # triton/knobs.py reads HOME when imported: in a forked rank, the runner's
            if site.ENABLE_USER_SITE and site.USER_BASE and os.path.isdir(site.USER_SITE or ""):
                self.env["PYTHONUSERBASE"] = site.USER_BASE

    def _make_ruleset(self, paths: Mapping[str, str]) -> None:
        abi = read_landlock_abi()
        if not abi:
            raise OSError("this kernel has no Landlock, or it is turned off")
        attributes = struct.pack("=QQQ", _compute_rights("rwm", abi), 0, SCOPE_SIGNAL if abi >= 6 else 0)
        size = 8 if abi < 4 else 16 if abi < 6 else 24
        self.ruleset = _call_landlock(CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0))
        os.set_inheritable(self.ruleset, False)
        names_threads = "w" in paths.get("/proc", "")
        for path, mode in expand_paths({**paths, "/proc": "r", self.temporary: "rwm"})[0].items():
            self._allow(path, _compute_rights(mode, abi))
        if self.view:
            self._allow_open(self.view.shared_memory, _compute_rights("rwm", abi))
        else:
            self._allow("/dev/shm", _compute_rights("rwm", abi))
        # As root, and without a view, /proc/sys would be among it (proc(5)), unless a container engine has mounted that
        # read-only: then `enter` gives the rank its own alone.
        is_root = not (self.user or {}).get("uid", os.geteuid())
        self._own_threads = names_threads and is_root and not self.view and not _is_read_only("/proc/sys")
        if names_threads and self.view:
            self._allow_open(self.view.processes, _compute_rights("rw", abi))
        elif names_threads and not self._own_threads:
            self._allow("/proc", _compute_rights("rw", abi))

    def _allow(self, path: str, rights: int) -> None:
        try:
            there = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return  # gone meanwhile, or not ours to see
        try:
            self._allow_open(there, rights)
        finally:
            os.close(there)

    def _allow_open(self, there: int, rights: int) -> None:
        rights &= ~0 if stat.S_ISDIR(os.fstat(there).st_mode) else FILE_RIGHTS
        rule = struct.pack("=Qi", rights, there)
        _call_landlock(ADD_RULE, ctypes.c_int(self.ruleset), ctypes.c_int(PATH_BENEATH), rule, ctypes.c_uint32(0))

    def enter(self, log: int) -> None:
        """Confine this process and its children for good. `log` can still be opened by the rank (/dev/stdout). Raises
        OSError."""
        if self.failure:
            raise self.failure
        if self.view:
            in_user_namespace = self.view.user >= 0
            self.view.enter()
        if self.user:
            os.fchown(log, self.user["uid"], self.user["gid"])
            os.setgroups(self.user["groups"])
            os.setresgid(*[self.user["gid"]] * 3)
            os.setresuid(*[self.user["uid"]] * 3)
            _libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # it has changed its user; /proc/self is its own all the same
        if _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "no_new_privs")
        if self.view and in_user_namespace:
            drop_all_capabilities()
        elif not os.geteuid():
            drop_capabilities()
        if self.ruleset >= 0:
            if self._own_threads:
                self._allow(f"/proc/{os.getpid()}/task", _compute_rights("rw", read_landlock_abi()))
            _call_landlock(RESTRICT_SELF, ctypes.c_int(self.ruleset), ctypes.c_uint32(0))
            os.close(self.ruleset)
        seccomp.install_filter()

    def refusal(self, message: str) -> str | None:
        """Return how the sandbox blocks the path that an exception's `message` names: `hidden`, or `readOnly` if it is
        readable; None if the sandbox does not block it. It is not checked whether the path exists: a script may name
        any path, and must not learn whether a hidden one exists."""
        told = _REFUSED_PATTERN.search(message)
        if not told or not self._given:
            return None
        path = os.path.normpath(told["path"])
        deepest = max((one for one in self._given if one == path or _is_below(path, one)), key=len, default="")
        mode = self._given.get(deepest, "")
        if mode == "":
            return "hidden"
        return "readOnly" if mode == "r" and told["number"] != "2" else None

    def close(self) -> None:
        """Remove the temporary folder and close descriptors, once no rank is left."""
        if self.view:
            self.view.close()
        if self.ruleset >= 0:
            os.close(self.ruleset)
        if self.temporary:
            shutil.rmtree(self.temporary, ignore_errors=True)


def _call_landlock(number: int, *arguments: Any) -> int:
    found = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"Landlock: {os.strerror(code)}")
    return found
