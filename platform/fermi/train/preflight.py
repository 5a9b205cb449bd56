"""The pre-flight test on one node: one process per node, which says on standard output, in JSON, what it saw.

    python -m fermi.train.preflight          MASTER_ADDR MASTER_PORT WORLD_SIZE RANK, and FERMI_PREFLIGHT (see `Order`)

Standard library only, Python 3.9 or later; torch and JAX are asked where they are installed, in a child process that
may hang or crash. Everything is bounded: a node that cannot reach the others says so and ends. It judges nothing: that
is `fermi.preflight`, which reads these lines of all nodes.

    hello  node  devices  end      of a node: that it is there, what it has, what torch and JAX see, that it is through
    head                           how it found the head (rank 0)
    pair  heard  bandwidth         from it to another node; whose datagrams it got
    together                       the all-reduce and the barrier

The head listens on the master port, and on ports beside it, in case that one is blocked. A member joins, stays
connected and does what the head says: everybody tests every other at once (`pairs`), then pair by pair sends for a
moment (`send`), then all do one thing together (`together`).
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median_high
from typing import Any

from fermi.train import preflight_node as this_node
from fermi.train.preflight_net import (
    ANSWER_SECONDS,
    JsonLineConnection,
    PreflightOrder,
    ProbeServer,
    call_node,
    close_connection,
    find_head,
    resolve_name,
)

Fact = dict  # of str to whatever JSON knows

PAIRS_SECONDS = 30.0
SEND_SECONDS = 0.4
MAX_MEASUREMENTS = 4  # how often a pair that looks slow is measured
DEVICES_SECONDS = 120.0  # torch from a slow network disk
TOGETHER_SECONDS = 60.0
PING_COUNT = 20
SEND_BLOCK = bytes(1 << 18)


class FactReporter:
    """Prints facts, and sends them to the head once it is found."""

    def __init__(self, rank: int, show: Callable[[Fact], None]) -> None:
        self.rank, self.show = rank, show
        self.said: list[Fact] = []
        self.to_head: JsonLineConnection | None = None
        self.lock = threading.Lock()

    def report_fact(self, kind: str, **facts: Any) -> None:
        with self.lock:
            fact = {"preflight": kind, "rank": self.rank, **facts}
            self.said.append(fact)
            self.show(fact)
            self._tell(fact)

    def found_head(self, line: JsonLineConnection) -> None:
        with self.lock:
            self.to_head = line
            for fact in self.said:
                self._tell(fact)

    def _tell(self, fact: Fact) -> None:
        if self.to_head:
            with contextlib.suppress(OSError):
                self.to_head.send({"said": fact})


# --- What the head orders -------------------------------------------------------------------------------------------


class PreflightWorker:
    """A node's part in the joint tests; also at the head."""

    def __init__(
        self, order: PreflightOrder, voice: FactReporter, door: ProbeServer, stack: this_node.StackProbe
    ) -> None:
        self.order, self.voice, self.door, self.stack = order, voice, door, stack
        self.peers: dict[int, Fact] = {}
        self.at: dict[int, str] = {}  # by which address another node was reached

    def do(self, what: Fact) -> Fact:
        return {"did": what["do"], **getattr(self, f"do_{what['do']}")(what)}

    def do_pairs(self, what: Fact) -> Fact:
        self.peers = {int(rank): peer for rank, peer in what["peers"].items() if int(rank) != self.order.rank}
        with ThreadPoolExecutor(min(32, len(self.peers) or 1)) as pool:
            list(pool.map(self._pair, self.peers))
        return {}

    def _pair(self, rank: int) -> None:
        peer = self.peers[rank]
        result, rtt = "unreachable", None
        for address in _list_addresses(peer):
            self.door.shout(address, peer["udp"])
        address = peer["seen"]
        for address in _list_addresses(peer):
            outcome, line, _ = call_node(self.order, address, peer["port"], "echo", rank)
            result = outcome if result != "timeout" or outcome == "ok" else result
            if line:
                rtt = _measure_round_trip(line.sock)
                line.sock.close()
                self.at[rank] = address
                break
        else:
            address = peer["seen"]
        names = [self._name(name, rank) for name in peer["names"] if name not in self.order.names]
        self.voice.report_fact(
            "pair", to=rank, free=result, master=peer.get("master", {}).get(str(self.order.rank)), address=address,
            port=peer["port"], rttMs=rtt, interface=this_node.find_interface_to(address),
            names=[name for name in names if name],
        )  # fmt: skip

    def _name(self, name: str, rank: int) -> Fact | None:
        """Return where a name of another node leads: `right` False = to another machine, or nowhere. None: the name is
        unknown."""
        peer, resolved = self.peers[rank], resolve_name(name)
        if not resolved:
            return None
        right = bool(set(_list_addresses(peer)) & set(resolved))
        if not right:
            calls = (call_node(self.order, address, peer["port"], "echo", rank, 1.5) for address in resolved[:2])
            right = any(close_connection(line) for _, line, _ in calls)
        return {"asked": name, "resolved": resolved, "right": right, "source": this_node.find_in_hosts_file(name)}

    def do_send(self, what: Fact) -> Fact:
        rank = int(what["to"])
        line = None
        if rank in self.at:
            port, more = self.peers[rank]["port"], {"seconds": what["seconds"]}
            _, line, _ = call_node(self.order, self.at[rank], port, "sink", rank, more=more)
        if line is None:
            return {"mbps": None}
        end = time.monotonic() + what["seconds"]
        try:
            with contextlib.suppress(socket.timeout):
                while (left := end - time.monotonic()) > 0:
                    line.sock.settimeout(left)
                    line.sock.send(SEND_BLOCK)
            network = line.sent_by_network()
            line.sock.shutdown(socket.SHUT_WR)
            mbps = round(max(float(line.receive(ANSWER_SECONDS)["mbps"]), network), 1)
        except (OSError, KeyError, TypeError):
            return {"mbps": None}
        finally:
            line.sock.close()
        self.voice.report_fact("bandwidth", to=rank, mbps=mbps, network=round(network, 1))
        return {"mbps": mbps}

    def do_devices(self, what: Fact) -> Fact:
        """Report what the child process has found, waiting for it up to DEVICES_SECONDS."""
        devices = self.stack.devices(DEVICES_SECONDS)
        self.voice.report_fact("devices", **devices)
        torch = devices.get("torch") or {}
        return {"torch": bool(torch) and not torch.get("error"), "gpus": torch.get("gpus", 0)}

    def do_together(self, what: Fact) -> Fact:
        said = self.stack.together({**what, "rank": self.order.rank, "world": self.order.world}, TOGETHER_SECONDS)
        self.voice.report_fact("together", **said)
        return {}

    def do_end(self, what: Fact) -> Fact:
        self.voice.report_fact("heard", **{"from": sorted(self.door.heard)})
        self.voice.report_fact("end")
        return {}


def _list_addresses(peer: Fact) -> list[str]:
    """Return a peer's addresses: the one that the head saw, then its others; loopback ones only where it came from
    there."""
    local = peer["seen"].startswith("127.") or peer["seen"] == "::1"
    others = [a for a in peer["addresses"] if not a.startswith(("127.", "::1", "fe80:", "169.254."))]
    return list(dict.fromkeys([peer["seen"], *([] if local else others[:8])]))


def _measure_round_trip(sock: socket.socket) -> float | None:
    """Return the shortest of several round trips, in ms."""
    best = None
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(ANSWER_SECONDS)
        for _ in range(PING_COUNT):
            began = time.perf_counter()
            sock.sendall(b"p")
            if not sock.recv(1):
                break
            took = (time.perf_counter() - began) * 1e3
            best = took if best is None else min(best, took)
    return None if best is None else round(best, 3)


def follow_orders(worker: PreflightWorker, head: JsonLineConnection) -> None:
    """Carry out the head's orders until it ends the test or its connection is lost."""
    while True:
        try:
            what = head.receive(DEVICES_SECONDS + TOGETHER_SECONDS)
            head.send(worker.do(what))
        except OSError:
            return
        if what["do"] == "end":
            return


# --- The head -------------------------------------------------------------------------------------------------------


class PreflightHead:
    """Runs the test from rank 0. `facts`: what the members reported."""

    def __init__(self, order: PreflightOrder, worker: PreflightWorker, door: ProbeServer) -> None:
        self.order, self.worker, self.door = order, worker, door
        self.facts: list[Fact] = []
        self.members: dict[int, JsonLineConnection] = {}
        self.hellos: dict[int, Fact] = {}

    def conduct(self) -> None:
        self.gather()
        if self.members:
            self.order_all({"do": "pairs", "peers": self._peers()}, PAIRS_SECONDS)
        ready = self.order_all({"do": "devices"}, DEVICES_SECONDS + 10)
        if self.order.full:
            slowest = self.measure() if self.members else float("inf")
            self.together(ready, slowest)
        self.order_all({"do": "end"}, ANSWER_SECONDS)

    def gather(self) -> None:
        """Wait until all members have joined, or `patience` is over."""
        end = time.monotonic() + self.order.patience
        while len(self.members) < self.order.world - 1:
            try:
                rank, line, hello = self.door.joining.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                break
            if isinstance(rank, int) and 0 < rank < self.order.world:
                if before := self.members.pop(rank, None):  # it did not get our answer, and came again
                    before.sock.close()
                self.members[rank] = line
                seen = line.sock.getpeername()[0].replace("::ffff:", "")
                self.hellos[rank] = {**hello, "seen": seen, "own": line.sock.getsockname()[0].replace("::ffff:", "")}
        self.door.closed = True

    def _peers(self) -> Fact:
        mine = [a for found in this_node.list_interfaces().values() for a in found]
        own = next(iter(self.hellos.values()))["own"]
        reached = {str(rank): "ok" for rank, line in self.members.items() if _get_local_port(line) == self.order.port}
        head = {"seen": own, "port": self.door.port, "udp": self.door.udp, "names": self.order.names,
                "addresses": mine, "master": reached}  # fmt: skip
        return {"0": head, **{str(rank): hello for rank, hello in self.hellos.items()}}

    def order_all(self, what: Fact, seconds: float) -> dict[int, Fact]:
        return self.order_each(dict.fromkeys((0, *self.members), what), seconds)

    def order_each(self, orders: dict[int, Fact], seconds: float) -> dict[int, Fact]:
        """Send orders and return the answers by rank; a member that does not answer in time is dropped."""
        with ThreadPoolExecutor(max(1, len(orders))) as pool:
            answers = {rank: pool.submit(self._order, rank, what, seconds) for rank, what in orders.items()}
            return {rank: found for rank, answer in answers.items() if (found := answer.result()) is not None}

    def _order(self, rank: int, what: Fact, seconds: float) -> Fact | None:
        if rank == 0:
            return self.worker.do(what)
        line, end = self.members[rank], time.monotonic() + seconds
        try:
            line.send(what)
            while True:
                message = line.receive(end - time.monotonic())
                if said := message.get("said"):
                    self.facts.append(said)
                elif message.get("did") == what["do"]:
                    return message
        except OSError:
            self.members.pop(rank, None)
            line.sock.close()
            return None

    def measure(self) -> float:
        """Measure every pair in both directions, each node in one pair at a time, slow ones again. Return the slowest,
        in Mbit/s."""
        ranks = [0, *self.members]
        best: dict[tuple[int, int], float] = {}
        pairs = [(a, b) for a in ranks for b in ranks if a != b]
        for _ in range(MAX_MEASUREMENTS):
            for one_round in schedule_rounds(pairs):
                to = {a: b for a, b in one_round if a == 0 or a in self.members}
                orders: dict[int, Fact] = {a: {"do": "send", "to": b, "seconds": SEND_SECONDS} for a, b in to.items()}
                for rank, answer in self.order_each(orders, 2 * ANSWER_SECONDS).items():
                    if answer.get("mbps") is not None:
                        best[rank, to[rank]] = max(best.get((rank, to[rank]), 0.0), answer["mbps"])
            tops = [max(v for pair, v in best.items() if rank in pair) for rank in {r for pair in best for r in pair}]
            pairs = [pair for pair, mbps in best.items() if mbps < median_high(tops) / 2]
        return min(best.values(), default=0.0)

    def together(self, ready: dict[int, Fact], mbps: float) -> None:
        """Run the all-reduce with all nodes, or not at all; on the master port, as training would, and with no more
        data than the slowest link carries in half a second."""
        if min(len(ready), len(self.members) + 1) < self.order.world:
            return self.worker.voice.report_fact("together", skipped="nodes")
        if not all(one["torch"] for one in ready.values()):
            return self.worker.voice.report_fact("together", skipped="torch")
        ports = {_get_local_port(line) for line in self.members.values()}
        dead = any(fact.get("free", "ok") != "ok" for fact in (*self.worker.voice.said, *self.facts))
        if dead or self.door.taken or ports - {self.order.port}:
            return self.worker.voice.report_fact("together", skipped="pairs")
        cuda = all(one["gpus"] for one in ready.values())
        backend = self.order.backend or ("nccl" if cuda else "gloo")
        self.door.leave(self.order.port)
        what = {
            "do": "together",
            "megabytes": max(0.25, min(16.0, round(mbps / 16, 2))),
            "backend": backend if cuda else "gloo",
            "head": self.order.head,
            "port": self.order.port,
        }
        self.order_all(what, TOGETHER_SECONDS + 10)
        return None


def _get_local_port(line: JsonLineConnection) -> int:
    port: int = line.sock.getsockname()[1]
    return port


def schedule_rounds(pairs: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Return the pairs in rounds, in each of which no node is in two pairs."""
    made: list[list[tuple[int, int]]] = []
    busy: list[set[int]] = []
    for pair in random.Random(0).sample(pairs, len(pairs)):
        for one, nodes in zip(made, busy):  # noqa: B905
            if not nodes & set(pair):
                one.append(pair)
                nodes |= set(pair)
                break
        else:
            made.append([pair])
            busy.append(set(pair))
    return made


def run_preflight(order: PreflightOrder, show: Callable[[Fact], None]) -> list[Fact]:
    """Run the test, and call `show` with each fact as soon as it is known. Return all facts that arrived here: at the
    head, those of all members that found it."""
    with this_node.StackProbe(order.stacks, order.quiet) as stack, ThreadPoolExecutor(1) as aside:
        voice, door = FactReporter(order.rank, show), ProbeServer(order)
        voice.report_fact("hello", name=order.name, names=order.names, world=order.world)
        looking = aside.submit(this_node.collect_node_facts, order.packages)
        worker = PreflightWorker(order, voice, door, stack)
        if order.rank == 0:
            voice.report_fact("node", **looking.result())
            via = next(iter(port for port in order.head_ports if port in door.doors), None)
            resolved, source = resolve_name(order.head), this_node.find_in_hosts_file(order.head)
            voice.report_fact("head", asked=order.head, port=order.port, resolved=resolved, source=source, tries=[],
                      via=via, taken=door.taken)  # fmt: skip
            head = PreflightHead(order, worker, door)
            head.conduct()
            return [*voice.said, *head.facts]
        line, found = find_head(order, door, door.port)
        voice.report_fact("node", **looking.result())
        voice.report_fact("head", **found)
        if line:
            voice.found_head(line)
            follow_orders(worker, line)
        if not any(fact["preflight"] == "devices" for fact in voice.said):
            worker.do_devices({})
        if not any(fact["preflight"] == "end" for fact in voice.said):
            worker.do_end({})
        return voice.said


def main() -> None:
    run_preflight(PreflightOrder(dict(os.environ)), lambda fact: print(json.dumps(fact), flush=True))
    sys.stdout.flush()
    os._exit(0)  # a thread that still waits for a name server must not keep the node


if __name__ == "__main__":
    main()
