"""Restricts this process to what sending a message needs. Standard library only.

It may read the Python installation, its packages, and what resolving names and checking certificates needs; it may
write and execute nothing. Landlock (landlock(7)) enforces that where the kernel has it; the audit hook of
`egress_policy` refuses the same in any case. A process of root gives up root's rights, and becomes a user of its own if
this user can read Python's packages.
"""

import ctypes
import os
import resource
import site
import ssl
import stat
import struct
import sys
import sysconfig
from contextlib import suppress

SENDER_UID = 61001
"""User id next to that of tasks (`fermi.engines.isolation.TASK_UID`): nothing else uses it."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_SET_DUMPABLE, _SET_NO_NEW_PRIVS = 4, 38
_CAPABILITY_VERSION = 0x20080522
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""Number of file rights by version of Landlock; 16 from the fifth on."""
_BIND_TCP = 1
_SCOPES = 3
"""Scopes: abstract UNIX sockets and signals."""

_SYSTEM = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/etc/localtime",
    "/etc/ld.so.cache", "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf",
    "/etc/services", "/etc/protocols", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs",
    "/etc/pki/ca-trust", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/dev/urandom", "/dev/null",
)  # fmt: skip
_LIMITS = {
    resource.RLIMIT_CORE: 0,  # addresses have passwords in them
    resource.RLIMIT_FSIZE: 0,
    resource.RLIMIT_NOFILE: 64,
    resource.RLIMIT_DATA: 512 << 20,
}


def list_readable_paths() -> list[str]:
    """Return the existing files and folders that sending may read."""
    python = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    authorities = [path for path in ssl.get_default_verify_paths() if path and path.startswith("/")]
    found = (*_SYSTEM, *python, *site.getsitepackages(), f"{sys.base_prefix}/lib", *authorities)
    return [path for path in dict.fromkeys(found) if os.path.exists(path)]


def confine_process(readable: list[str]) -> None:
    """Restrict this process for good to the files in `readable`, as far as the kernel can."""
    libc = ctypes.CDLL(None, use_errno=True)
    os.chdir("/")  # of which nothing may be read but what `readable` names
    for limit, most in _LIMITS.items():
        resource.setrlimit(limit, (most, most))
    ruleset = _make_ruleset(libc, readable)
    if os.geteuid() == 0:
        _drop_root(libc)
    libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if ruleset >= 0:
        if libc.syscall(ctypes.c_long(_RESTRICT_SELF), ctypes.c_int(ruleset), ctypes.c_uint32(0)):
            raise OSError(ctypes.get_errno(), "Landlock")
        os.close(ruleset)


def _make_ruleset(libc: ctypes.CDLL, readable: list[str]) -> int:
    """Return the file descriptor of a ruleset; -1 where the kernel has no Landlock."""
    version = int(libc.syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint32(1)))
    if version < 1:
        return -1
    handled = (1 << _FILE_RIGHTS.get(version, 16)) - 1
    attributes = struct.pack("=QQQ", handled, _BIND_TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = int(libc.syscall(ctypes.c_long(_CREATE_RULESET), attributes, ctypes.c_size_t(size), ctypes.c_uint32(0)))
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "Landlock")
    for path in readable:
        with suppress(OSError):  # it may be unreadable for us, too
            there = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rights = _READ_FILE | (_READ_DIR if stat.S_ISDIR(os.fstat(there).st_mode) else 0)
            rule = struct.pack("=Qi", rights, there)
            libc.syscall(ctypes.c_long(_ADD_RULE), ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0))
            os.close(there)
    return ruleset


def _drop_root(libc: ctypes.CDLL) -> None:
    if all(_others_can_read(path) for path in (sysconfig.get_path("stdlib"), *site.getsitepackages())):
        os.setgroups([])
        os.setresgid(*[SENDER_UID] * 3)
        os.setresuid(*[SENDER_UID] * 3)
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION, 0))
    if libc.capset(header, ctypes.create_string_buffer(24)):
        raise OSError(ctypes.get_errno(), "capabilities")


def _others_can_read(path: str) -> bool:
    place = os.path.realpath(path)
    above = [place]
    while (place := os.path.dirname(place)) != above[-1]:
        above.append(place)
    return os.path.exists(path) and all(os.stat(one).st_mode & stat.S_IXOTH for one in above)
