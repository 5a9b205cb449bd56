"""Restricts where messages may go: only to hosts that an operator has allowed (FERMI_NOTICE_HOSTS).

The names and addresses that users enter are checked, and so is each look-up and each connection while a message is
sent: a name that resolves to an address of the internal network, a redirect, a library that connects elsewhere. Python
calls audit hooks before it resolves a name, connects, opens a file or starts a program (PEP 578); while a message is
sent, this hook refuses what is not allowed, in all threads of the process. An audit hook cannot be removed again. This
module runs in the process that sends, without Django.
"""

import ipaddress
import os
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_thread_state = threading.local()
_hook_lock = threading.Lock()
_is_hooked = False
_policy: "_EgressPolicy | None" = None

_PROGRAMS = ("subprocess.", "syslog.", "os.system", "os.posix_spawn", "os.spawn", "os.exec", "os.fork", "pty.spawn")
_CHANGES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.chown",
            "os.truncate")  # fmt: skip
_WATCHED = ("socket.", "open", "os.listdir", "os.scandir", *_PROGRAMS, *_CHANGES)


class HostNotAllowedError(OSError):
    """`host`: what was refused. An OSError, so that libraries treat it as a failed connection."""

    def __init__(self, host: str) -> None:
        super().__init__(f"{host} is not among FERMI_NOTICE_HOSTS")
        self.host = host


class FileNotAllowedError(PermissionError):
    """A file or program that is not needed for sending messages."""


class AllowedHosts:
    """Allowed hosts. `patterns`: host names, `*.example.org`, addresses and networks (`10.0.0.0/8`); `*` = any public
    host. An address that is not public is allowed by a network only, whatever name resolves to it."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.names: list[str] = []
        self.networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for word in patterns:
            try:
                self.networks.append(ipaddress.ip_network(word, strict=False))
            except ValueError:
                self.names.append(word.lower().rstrip("."))

    def name(self, host: str) -> bool:
        """Return True if a host may be resolved; an address stands for itself."""
        host = host.strip("[]").lower().rstrip(".")
        if (address := _parse_address(host)) is not None:
            return self.address(address, named=False)
        return any(fnmatchcase(host, pattern) for pattern in self.names) or bool(self.networks and host == "localhost")

    def address(self, address: _Address, *, named: bool) -> bool:
        """Return True if an address may be connected to. `named`: an allowed name has resolved to it."""
        mapped = getattr(address, "ipv4_mapped", None) or address
        if any(mapped in network for network in self.networks if network.version == mapped.version):
            return True
        return named and mapped.is_global and not mapped.is_multicast


class RefusedHost:
    """The last `host` that was refused; empty: none was."""

    host = ""


class _EgressPolicy:
    """What may be reached while a message is sent. `readable`: files and folders; None: files are not checked."""

    def __init__(self, allowed: AllowedHosts, readable: Sequence[str] | None) -> None:
        self.allowed, self.refused = allowed, RefusedHost()
        self.readable = None if readable is None else tuple(os.path.realpath(path) for path in readable)

    def refuse(self, host: str) -> None:
        self.refused.host = host
        raise HostNotAllowedError(host)

    def file(self, path: Any, *, changed: bool) -> None:
        if self.readable is None or isinstance(path, int) or path is None:
            return
        place = os.path.realpath(os.fsdecode(path))
        if changed or not any(place == one or place.startswith(f"{one}/") for one in self.readable):
            raise FileNotAllowedError(f"{place} is not for sending messages")

    def connection(self, sock: Any, target: Any) -> None:
        family = getattr(sock, "family", None)
        if family not in (socket.AF_INET, socket.AF_INET6) or not isinstance(target, tuple) or not target:
            self.refuse(str(target))
        address = _parse_address(str(target[0]))
        if address is None or not self.allowed.address(address, named=getattr(_thread_state, "named", False)):
            self.refuse(str(target[0]))


@contextmanager
def enforce_policy(allowed: AllowedHosts, readable: Sequence[str] | None = None) -> Iterator[RefusedHost]:
    """Refuse connections that are not allowed, all programs, and all files but those in or below `readable`, in the
    whole process while the block runs. The connection raises HostNotAllowedError, which libraries may swallow; the
    yielded object keeps what was refused."""
    global _policy
    _install_hook()
    before, judge = _policy, _EgressPolicy(allowed, readable)
    _policy, _thread_state.named = judge, False
    try:
        yield judge.refused
    finally:
        _policy = before


def _install_hook() -> None:
    global _is_hooked
    with _hook_lock:
        if not _is_hooked:
            sys.addaudithook(_check_event)
            _is_hooked = True


def _check_event(event: str, arguments: tuple[Any, ...]) -> None:
    judge = _policy
    if judge is None or not event.startswith(_WATCHED):
        return
    if event == "socket.getaddrinfo":
        host = arguments[0]
        host = host.decode(errors="replace") if isinstance(host, bytes) else host
        if host is not None and not judge.allowed.name(str(host)):
            judge.refuse(str(host))
        _thread_state.named = host is not None and _parse_address(str(host)) is None
    elif event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        judge.connection(arguments[0], arguments[1] if len(arguments) > 1 else None)
    elif event == "open":
        flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
        judge.file(arguments[0], changed=bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)))
    elif event in ("os.listdir", "os.scandir"):
        judge.file(arguments[0] if arguments else None, changed=False)
    elif event in _CHANGES:
        judge.file(arguments[0], changed=True)
    elif event.startswith(_PROGRAMS):
        judge.refuse(f"a program ({event})")


def _parse_address(text: str) -> _Address | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
