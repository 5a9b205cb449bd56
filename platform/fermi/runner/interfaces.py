"""Finds the network interface that reaches a host. Standard library only, Python 3.9 or later."""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct

SIOCGIFADDR = 0x8915
INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def build_interface_env(head: str, *, is_head: bool) -> dict[str, str]:
    """Return the variables for the interface that gloo and NCCL bind: the one that reaches the head, unless our own
    environment sets them. Empty if the head's own name leads to the loopback interface (as in Debian's /etc/hosts).
    `is_head`: this node is the head."""
    name = find_interface_to(head)
    if not name or (is_head and name == "lo" and not _is_loopback(head)):
        return {}
    return {key: name for key in INTERFACE_VARIABLES if not os.environ.get(key)}


def _is_loopback(address: str) -> bool:
    return address in ("localhost", "::1") or address.startswith("127.")


def find_interface_to(address: str) -> str:
    """Return the name of the network interface that reaches `address`, or an empty string if unknown."""
    try:
        family, kind, _, _, target = socket.getaddrinfo(address, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)  # of a datagram socket: nothing is sent, a route is chosen
            own = probe.getsockname()[0]
    except OSError:
        return ""
    return next((name for name in list_interfaces() if own in list_addresses(name)), "")


def list_interfaces() -> list[str]:
    """Return the names of all network interfaces."""
    return [name for _, name in socket.if_nameindex()]


def list_addresses(name: str) -> set[str]:
    """Return the IPv4 and IPv6 addresses of an interface."""
    found = set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = array.array("B", struct.pack("256s", name[:15].encode()))
        try:
            fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request)
            found.add(socket.inet_ntoa(bytes(request)[20:24]))
        except OSError:
            pass
    try:
        with open("/proc/net/if_inet6", encoding="utf-8") as file:
            for line in file:
                fields = line.split()
                if fields[5] == name:
                    found.add(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0])))
    except OSError:
        pass
    return found
