"""Where messages may go: nowhere but to what an operator has allowed (FERMI_NOTICE_HOSTS).

The names and addresses that somebody types are checked, and so is each look-up and each connection that a message makes
while it is sent: a name that leads to an address of the own network, a redirect, a library that goes elsewhere. Python
asks audit hooks before it looks a name up and before it connects (`socket.getaddrinfo`, `socket.connect`); while a
message is sent in a thread, this one refuses what is not allowed. An audit hook cannot be taken away again, and does
nothing in other threads.
"""

import ipaddress
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

from django.conf import settings

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_here = threading.local()
_hooked = threading.Lock()
_is_hooked = False


_WATCHED = ("socket.", "subprocess.", "syslog.", "os.system", "os.posix_spawn", "os.exec", "os.fork")


class NotAllowed(OSError):
    """`host`: what was refused. An OSError, so that libraries take it for a connection that failed."""

    def __init__(self, host: str) -> None:
        super().__init__(f"{host} is not among FERMI_NOTICE_HOSTS")
        self.host = host


class Allowed:
    """`words`: host names, `*.example.org`, addresses and networks (`10.0.0.0/8`); `*` = any public host. An address
    that is not public is allowed by a network alone: no name leads there by itself."""

    def __init__(self, words: Sequence[str]) -> None:
        self.names: list[str] = []
        self.networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for word in words:
            try:
                self.networks.append(ipaddress.ip_network(word, strict=False))
            except ValueError:
                self.names.append(word.lower().rstrip("."))

    def name(self, host: str) -> bool:
        """Whether a host may be looked up; an address stands for itself."""
        host = host.strip("[]").lower().rstrip(".")
        if (address := _address(host)) is not None:
            return self.address(address, named=False)
        return any(fnmatchcase(host, pattern) for pattern in self.names) or bool(self.networks and host == "localhost")

    def address(self, address: _Address, *, named: bool) -> bool:
        """Whether it may be connected to. `named`: a name that is allowed has led there."""
        mapped = getattr(address, "ipv4_mapped", None) or address
        if any(mapped in network for network in self.networks if network.version == mapped.version):
            return True
        return named and mapped.is_global and not mapped.is_multicast


def allowed() -> Allowed:
    return Allowed(settings.NOTICE_HOSTS)


class Refused:
    """`host`: the last one that was refused; empty: none was."""

    host = ""


@contextmanager
def guarded() -> Iterator[Refused]:
    """What this thread connects to meanwhile has to be allowed. Raises NotAllowed from within the connection, which
    libraries may swallow: what was refused stays known."""
    _hook()
    before = getattr(_here, "allowed", None)
    _here.allowed, _here.named, _here.refused = allowed(), False, Refused()
    try:
        yield _here.refused
    finally:
        _here.allowed = before


def _refuse(host: str) -> None:
    _here.refused.host = host
    raise NotAllowed(host)


def _hook() -> None:
    global _is_hooked
    with _hooked:
        if not _is_hooked:
            sys.addaudithook(_audit)
            _is_hooked = True


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not event.startswith(_WATCHED):
        return
    rules: Allowed | None = getattr(_here, "allowed", None)
    if rules is None:
        return
    if event == "socket.getaddrinfo":
        host = arguments[0]
        host = host.decode(errors="replace") if isinstance(host, bytes) else host
        if host is not None and not rules.name(str(host)):
            _refuse(str(host))
        _here.named = host is not None and _address(str(host)) is None
    elif event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        _check(rules, arguments[0], arguments[1] if len(arguments) > 1 else None)
    elif not event.startswith("socket."):
        _refuse(f"a program ({event})")


def _check(rules: Allowed, sock: Any, target: Any) -> None:
    family = getattr(sock, "family", None)
    if family not in (socket.AF_INET, socket.AF_INET6) or not isinstance(target, tuple) or not target:
        _refuse(str(target))
    address = _address(str(target[0]))
    if address is None or not rules.address(address, named=getattr(_here, "named", False)):
        _refuse(str(target[0]))


def _address(text: str) -> _Address | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
