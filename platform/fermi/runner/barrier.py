r"""The barrier at which the nodes of a job wait before any of them starts a rank. Standard library only, Python 3.9 or
later.

The head node listens on the rendezvous port, before its rank 0 does. The others wait until the head's name resolves (a
headless name does not exist before its pod does) and that port accepts, send their number, and stay connected. When all
are connected, the head sends `go` and closes. So no framework's own timeout expires while one node still pulls its
image, and no rank starts on a network that does not reach the head.

    node k ── "task-x-1 k\n" ──▶ head          head ── "go\n" ──▶ every node
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import time
from collections.abc import Callable
from typing import Any

from fermi.runner import ports
from fermi.runner.number_ranges import format_ranges

DEFAULT_TIMEOUT_SECONDS = 1800.0
LOG_PERIOD_SECONDS = 30.0
RETRY_SECONDS = 0.2


class RendezvousError(Exception):
    """The nodes did not meet. `cause` is a reason code of the platform, `detail` what was waited for, `about` further
    parameters of the reason's text."""

    def __init__(self, cause: str, detail: str, **about: Any) -> None:
        super().__init__(detail)
        self.cause, self.detail, self.about = cause, detail, about


LogLine = Callable[[str], None]
IsStopped = Callable[[], bool]


def wait_as_head(
    name: str, nodes: int, port: int, log: LogLine, is_stopped: IsStopped, timeout: float = DEFAULT_TIMEOUT_SECONDS
) -> None:
    """Return once all `nodes` are connected (this one included), or `is_stopped` returns True. Raises RendezvousError
    with the missing nodes or the process that has the port, and OSError if the port cannot be listened on for another
    reason."""
    here: dict[int, socket.socket] = {}
    with _open_rendezvous_port(port, nodes) as door:
        end, told = time.monotonic() + timeout, 0.0
        while len(here) < nodes - 1:
            if is_stopped():
                return
            missing = format_ranges((rank for rank in range(1, nodes) if rank not in here), ", ")
            if time.monotonic() > end:
                raise RendezvousError("NODES_MISSING", missing)
            if time.monotonic() - told > LOG_PERIOD_SECONDS:
                log(f"waiting on port {port} for node {missing}")
                told = time.monotonic()
            _accept_peer(door, here, name, nodes)
        for peer in here.values():
            peer.sendall(b"go\n")
    for peer in here.values():  # they close first, so that no connection of the head's port lingers
        peer.settimeout(5)
        with contextlib.suppress(OSError):
            peer.recv(1)
        peer.close()


def wait_as_member(
    name: str,
    node_rank: int,
    head: str,
    port: int,
    log: LogLine,
    is_stopped: IsStopped,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
) -> str:
    """Return the address that answered for the head, once all nodes are connected. Raises RendezvousError."""
    end, told, last = time.monotonic() + timeout, 0.0, ""
    while not is_stopped():
        addresses: list[Any] = []
        try:
            addresses = socket.getaddrinfo(head, port, type=socket.SOCK_STREAM)
        except OSError as error:
            why = f"{type(error).__name__}: {error}"
        for family, kind, _, _, address in addresses:
            try:  # one of them may be of a family that this machine does not have, or has no route for
                with socket.socket(family, kind) as door:
                    door.settimeout(5)
                    door.connect(address)
                    door.sendall(f"{name} {node_rank}\n".encode())
                    if _wait_for_go(door, end, is_stopped):
                        return str(address[0])
                why = "the head does not answer; it is not the head of this attempt, or it ended"
            except OSError as error:
                why = f"{type(error).__name__}: {error}"
        if time.monotonic() > end:
            raise RendezvousError("MASTER_UNREACHABLE", f"{head}:{port}: {why}")
        if time.monotonic() - told > LOG_PERIOD_SECONDS or (why != last and time.monotonic() - told > 1):
            log(f"waiting for the master node at {head}:{port}: {why}")
            told, last = time.monotonic(), why
        time.sleep(RETRY_SECONDS)
    return head


def _open_rendezvous_port(port: int, nodes: int) -> socket.socket:
    try:
        return _listen_on_port(port, nodes)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise RendezvousError(
                "MASTER_PORT_TAKEN", str(error), port=port, holder=ports.describe_holder(port) or None
            ) from error
        raise


def _listen_on_port(port: int, backlog: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
        except OSError as error:
            if "address family" not in str(error).lower() and error.errno not in (97, 99):
                raise
    return socket.create_server(("", port), backlog=backlog)


def _accept_peer(listener: socket.socket, peers: dict[int, socket.socket], name: str, nodes: int) -> None:
    """Wait a moment for peers that connect or disconnect."""
    ready, _, _ = select.select([listener, *peers.values()], [], [], 0.25)
    for rank, peer in list(peers.items()):
        if peer in ready:  # it has nothing more to say, so it went away; it will come again
            peers.pop(rank).close()
    if listener not in ready:
        return
    peer, _ = listener.accept()
    peer.settimeout(5)
    try:
        said = peer.recv(300).decode(errors="replace").split()
    except OSError:
        said = []
    if len(said) == 2 and said[0] == name and said[1].isdecimal() and 0 < int(said[1]) < nodes:
        if earlier := peers.pop(int(said[1]), None):
            earlier.close()
        peers[int(said[1])] = peer
    else:
        peer.close()


def _wait_for_go(connection: socket.socket, end: float, is_stopped: IsStopped) -> bool:
    """Return True if the head sent `go`, and False if it closed the connection before."""
    while time.monotonic() < end and not is_stopped():
        if select.select([connection], [], [], 0.25)[0]:
            return connection.recv(16) == b"go\n"
    return False
