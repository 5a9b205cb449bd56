"""Network part of the pre-flight test: a server that answers probes, calls to the servers of other nodes, and the
connection to the head. Standard library only."""

from __future__ import annotations

import contextlib
import json
import queue
import select
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fermi.runner.ports import DEFAULT_MASTER_PORT
from fermi.train import preflight_node as this_node

Fact = dict  # of str to whatever JSON knows

CONNECT_SECONDS = 3.0  # three attempts of TCP's
ANSWER_SECONDS = 5.0  # of a process that has accepted already
WINDOW_SECONDS = 0.1  # the best of these counts: noise on a machine makes a link look slower, never faster


class PreflightOrder:
    """What this node is to test, from its environment variables. `name`, `addresses`: by which users and the platform
    know it; `stacks`: packages to import; `packages`: further ones whose versions to report; `patience`: seconds that
    nodes wait for each other; `quiet`: suppress the output of torch and JAX."""

    def __init__(self, env: dict[str, str]) -> None:
        about = json.loads(env.get("FERMI_PREFLIGHT") or "{}")
        self.rank, self.world = int(env.get("RANK") or 0), int(env.get("WORLD_SIZE") or 1)
        self.head, self.port = env.get("MASTER_ADDR") or "127.0.0.1", int(env.get("MASTER_PORT") or DEFAULT_MASTER_PORT)
        self.run = f"{env.get('FERMI_TASK_ID', 'by-hand')}-{env.get('FERMI_ATTEMPT', '')}"
        self.name = about.get("name") or socket.gethostname()
        self.names = list(dict.fromkeys([self.name, socket.gethostname(), *about.get("addresses", ())]))
        self.full, self.patience = about.get("level") == "full", float(about.get("patience") or 12)
        self.quiet = bool(about.get("quiet"))
        self.stacks = about.get("stacks") or ["torch", "jax"]
        self.packages = about.get("packages") or []
        self.backend = env.get("FERMI_BACKEND") or ""

    @property
    def head_ports(self) -> list[int]:
        """The master port, and three further ones that no job is given and no outgoing connection gets."""
        return [self.port, *(61_000 + self.port % 1_500 + beside for beside in (0, 1_500, 3_000))]


class JsonLineConnection:
    """A connection over which each side sends JSON objects, one a line."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.rest, self.lock = sock, b"", threading.Lock()

    def send(self, message: Fact) -> None:
        with self.lock:
            self.sock.settimeout(ANSWER_SECONDS)
            self.sock.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, seconds: float) -> Fact:
        """Return the next object. Raise OSError where none is complete in time, or the other side has closed."""
        end = time.monotonic() + seconds
        while b"\n" not in self.rest:
            if not select.select([self.sock], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("timed out")
            data = self.sock.recv(1 << 16)
            if not data or len(self.rest) > 1 << 24:
                raise ConnectionResetError("the other side went away")
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ConnectionResetError("not one of us")
        return found

    def sent_by_network(self) -> float:
        """Return Mbit/s over the time in which the sender waited for the network, and neither for the sending nor the
        receiving process: other load on a machine does not make its links look slow. 0 where Linux does not report it.
        """
        info = self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        if len(info) < 192:
            return 0.0
        (acknowledged,) = struct.unpack_from("=Q", info, 120)
        busy, by_receiver, by_buffer = struct.unpack_from("=3Q", info, 168)  # microseconds
        waited = busy - by_receiver - by_buffer
        return acknowledged * 8 / waited if waited > 0 else 0.0


# --- Listening ------------------------------------------------------------------------------------------------------


class ProbeServer:
    """Answers on all its ports: identifies itself, and then serves an echo, a sink for bytes, or (at the head)
    membership in the test. Datagrams are only counted."""

    def __init__(self, order: PreflightOrder) -> None:
        self.order = order
        self.heard: set[int] = set()
        self.joining: queue.Queue[tuple[int, JsonLineConnection, Fact]] = queue.Queue()
        self.closed = False  # nobody may join any more
        self.doors: dict[int, socket.socket] = {}
        self.taken = ""
        if order.rank == 0:
            for port in order.head_ports:
                try:
                    self._open(port)
                except OSError as error:
                    self.taken = self.taken or (str(error.strerror or error) if port == order.port else "")
        self.port = self._open(0)
        self.datagrams = _open_datagram_socket(self.port if order.rank else order.port) or _open_datagram_socket(0)
        self.udp = self.datagrams.getsockname()[1] if self.datagrams else 0
        self.stopped = False
        threading.Thread(target=self._serve, daemon=True).start()

    def _open(self, port: int) -> int:
        door = _listen(port)
        real: int = door.getsockname()[1]
        self.doors[real] = door
        return real

    def leave(self, port: int) -> None:
        """Stop listening on a port, so that another process can."""
        door = self.doors.pop(port, None)
        if door:
            door.close()
        time.sleep(0.3)  # the thread that waits on it sees so

    def _serve(self) -> None:
        while not self.stopped:
            waiting = [*self.doors.values(), *([self.datagrams] if self.datagrams else [])]
            with contextlib.suppress(OSError, ValueError):  # a door was closed meanwhile
                for ready in select.select(waiting, [], [], 0.2)[0]:
                    if ready is self.datagrams:
                        self._hear()
                    else:
                        threading.Thread(target=self._welcome, args=ready.accept(), daemon=True).start()

    def _hear(self) -> None:
        assert self.datagrams
        data, where = self.datagrams.recvfrom(2048)
        said = _parse_datagram(data)
        if said.get("run") == self.order.run and isinstance(said.get("rank"), int):
            self.heard.add(said["rank"])
            if not said.get("back"):
                back = {"run": self.order.run, "rank": self.order.rank, "back": True}
                self.datagrams.sendto(json.dumps(back).encode(), where)

    def shout(self, address: str, port: int) -> None:
        """Send three datagrams, one of which should arrive."""
        if self.datagrams and port:
            hello = json.dumps({"run": self.order.run, "rank": self.order.rank}).encode()
            for _ in range(3):
                with contextlib.suppress(OSError):
                    self.datagrams.sendto(hello, _make_target(self.datagrams, address, port))

    def _welcome(self, sock: socket.socket, _: Any) -> None:
        line = JsonLineConnection(sock)
        with contextlib.suppress(OSError):
            hello = line.receive(ANSWER_SECONDS)
            if hello.get("run") != self.order.run:
                return sock.close()
            want = hello.get("want")
            late = want == "join" and (self.closed or self.order.rank != 0)
            line.send({"run": self.order.run, "rank": self.order.rank, "late": late})
            if want == "join" and not late:
                self.joining.put((hello["rank"], line, hello))
                return None  # it stays open
            if want == "echo":
                _echo(sock)
            elif want == "sink":
                line.send({"mbps": _sink(line, float(hello["seconds"]))})
                _drain(sock)
        sock.close()
        return None


def _listen(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=1024)


def _open_datagram_socket(port: int) -> socket.socket | None:
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "")):
        with contextlib.suppress(OSError):
            sock = socket.socket(family, socket.SOCK_DGRAM)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind((address, port))
            return sock
    return None


def _make_target(sock: socket.socket, address: str, port: int) -> tuple[Any, ...]:
    mapped = sock.family == socket.AF_INET6 and ":" not in address
    return (f"::ffff:{address}" if mapped else address, port)


def _echo(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(ANSWER_SECONDS)
    while data := sock.recv(64):
        sock.sendall(data)


def _sink(line: JsonLineConnection, seconds: float) -> float:
    """Return the Mbit/s of the best window."""
    sock, buffer = line.sock, bytearray(1 << 20)
    sock.settimeout(ANSWER_SECONDS)
    taken, best, since = 0, 0.0, 0.0
    end = time.monotonic() + ANSWER_SECONDS
    while (moment := time.monotonic()) < end:
        try:
            count = sock.recv_into(buffer)
        except OSError:
            break
        moment = time.monotonic()
        if not since:
            since, end = moment, moment + seconds
            continue
        taken += count
        if moment - since >= WINDOW_SECONDS or not count:
            best = max(best, taken * 8e-6 / max(moment - since, 1e-3))
            taken, since = 0, moment
        if not count:
            break
    return best or (taken * 8e-6 / max(time.monotonic() - since, 1e-3) if since else 0.0)


def _drain(sock: socket.socket) -> None:
    sock.shutdown(socket.SHUT_WR)
    sock.settimeout(2)
    while sock.recv(1 << 20):
        pass


def _parse_datagram(data: bytes) -> Fact:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


# --- Going to others ------------------------------------------------------------------------------------------------


def call_node(
    order: PreflightOrder,
    address: str,
    port: int,
    want: str,
    rank: int | None,
    seconds: float = CONNECT_SECONDS,
    more: Fact | None = None,
) -> tuple[str, JsonLineConnection | None, Fact]:
    """Return the outcome (ok, refused, timeout, unreachable, stranger, late), the connection, and the answer. With
    `rank`, the other side must be that rank."""
    try:
        sock = socket.create_connection((address, port), timeout=seconds)
    except socket.timeout:  # noqa: UP041 (not yet the same in 3.9)
        return "timeout", None, {}
    except ConnectionRefusedError:
        return "refused", None, {}
    except OSError:
        return "unreachable", None, {}
    line = JsonLineConnection(sock)
    try:
        line.send({"run": order.run, "rank": order.rank, "want": want, **(more or {})})
        answer = line.receive(ANSWER_SECONDS)
    except OSError:
        sock.close()
        return "stranger", None, {}
    if answer.get("run") != order.run or (rank is not None and answer.get("rank") != rank):
        sock.close()
        return "stranger", None, {}
    if answer.get("late"):
        sock.close()
        return "late", None, answer
    return "ok", line, answer


def close_connection(line: JsonLineConnection | None) -> bool:
    """Close the connection; return whether there was one."""
    if line:
        line.sock.close()
    return line is not None


def resolve_name(name: str, seconds: float = 5.0) -> list[str]:
    """Return the addresses of a name. Resolved in a thread, as an unreachable name server can block for minutes."""
    found: list[str] = []

    def ask() -> None:
        with contextlib.suppress(OSError, UnicodeError):
            for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM):
                if entry[4][0] not in found:
                    found.append(str(entry[4][0]))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(seconds)
    return list(found)


def find_head(order: PreflightOrder, door: ProbeServer, port: int) -> tuple[JsonLineConnection | None, Fact]:
    """Return the connection to the head, and the fact `head`."""
    tries: dict[tuple[str, int], str] = {}
    line: JsonLineConnection | None = None
    end, resolved = time.monotonic() + order.patience, list[str]()
    hello = {"port": port, "udp": door.udp, "names": order.names,
             "addresses": [a for found in this_node.list_interfaces().values() for a in found]}  # fmt: skip
    with ThreadPoolExecutor(16) as pool:
        while True:
            resolved = resolve_name(order.head) or resolved
            places = [(address, port) for port in order.head_ports for address in resolved]
            tries.update(zip(places, pool.map(lambda place: _probe_head(order, place, 1.5), places)))  # noqa: B905
            for address in resolved:
                door.shout(address, order.port)
                if any(tries[address, port] == "ok" for port in order.head_ports[1:]):
                    tries[address, order.port] = _probe_head(order, (address, order.port), CONNECT_SECONDS)  # once more
            best = next((place for place in places if tries[place] == "ok"), None)
            if best:
                tries[best], line, _ = call_node(order, *best, "join", 0, more=hello)
            late = bool(best and tries[best] == "late")
            if line or late or time.monotonic() > end:
                break
            time.sleep(0.2)
    fact = {
        "asked": order.head, "port": order.port, "resolved": resolved, "source":
        this_node.find_in_hosts_file(order.head), "tries": [{"address": a, "port": p, "result": result} for (a, p),
        result in tries.items()], "via": best[1] if best and line else None, "address": best[0] if best and line else
    None, "late": late, }  # fmt: skip
    return line, fact


def _probe_head(order: PreflightOrder, place: tuple[str, int], seconds: float) -> str:
    result, line, _ = call_node(order, *place, "look", 0, seconds)
    close_connection(line)
    return result
