"""Nodes of a small cluster as network namespaces of this machine: real interfaces, routes, firewalls and limits, and
nothing of the machine's own network touched.

    node 0 ── eth0 ─┐
    node 1 ── eth0 ─┼─ bridge, in a namespace of its own          10.77.0.1, 10.77.0.2, …; names node-0, node-1, …
    node 2 ── eth0 ─┘
"""

import os
import secrets
import shutil
import subprocess
from pathlib import Path

ETC = Path("/etc/netns")


def missing() -> str:
    """Why there can be no lab here; empty when there can."""
    if os.getuid() != 0:
        return "network namespaces need root"
    if absent := [program for program in ("ip", "tc", "iptables") if not shutil.which(program)]:
        return f"not installed: {', '.join(absent)} (Debian: iproute2, iptables)"
    probe = f"fermi-{secrets.token_hex(3)}-probe"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True).returncode:
        return "this machine allows no network namespaces"
    try:
        done = subprocess.run(["ip", "netns", "exec", probe, "iptables", "-L"], capture_output=True)
        return "this machine has no iptables in network namespaces" if done.returncode else ""
    finally:
        subprocess.run(["ip", "netns", "del", probe], check=True)


class Lab:
    def __init__(self, nodes: int) -> None:
        self.nodes = range(nodes)
        self.name = f"fermi-{secrets.token_hex(3)}"
        self.hub = f"{self.name}-hub"

    def __enter__(self) -> "Lab":
        try:
            self._ip("netns", "add", self.hub)
            self._ip("-n", self.hub, "link", "add", "hub", "type", "bridge")
            self._ip("-n", self.hub, "link", "set", "hub", "up")
            for node in self.nodes:
                self._add(node)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for space in (self.hub, *map(self.space, self.nodes)):
            subprocess.run(["ip", "netns", "del", space], capture_output=True)
            shutil.rmtree(ETC / space, ignore_errors=True)

    def _add(self, node: int) -> None:
        space = self.space(node)
        self._ip("netns", "add", space)
        self._ip("-n", self.hub, "link", "add", f"to-{node}", "type", "veth", "peer", "name", "eth0", "netns", space)
        self._ip("-n", self.hub, "link", "set", f"to-{node}", "master", "hub", "up")
        self._ip("-n", space, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
        for name in ("lo", "eth0"):
            self._ip("-n", space, "link", "set", name, "up")
        self.hosts(node, {f"node-{other}": self.address(other) for other in self.nodes})

    def space(self, node: int) -> str:
        return f"{self.name}-{node}"

    @staticmethod
    def address(node: int) -> str:
        return f"10.77.0.{node + 1}"

    def hosts(self, node: int, entries: dict[str, str]) -> None:
        """What /etc/hosts says on that node."""
        (ETC / self.space(node)).mkdir(parents=True, exist_ok=True)
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in entries.items())]
        (ETC / self.space(node) / "hosts").write_text("\n".join(lines) + "\n")

    def drop(self, node: int, *what: str) -> None:
        """Has a node's firewall drop what comes in: `-s 10.77.0.2`, `-p tcp --dport 29500`."""
        self.run(node, "iptables", "-A", "INPUT", *what, "-j", "DROP")

    def slow_down(self, node: int, to: int | None = None, rate: str = "10mbit") -> None:
        """Limits what leaves a node, to one other node or to all."""
        if to is None:
            bucket = ("tbf", "rate", rate, "burst", "16kb", "latency", "50ms")
            self.run(node, "tc", "qdisc", "add", "dev", "eth0", "root", *bucket)
            return
        self.run(node, "tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb")
        self.run(node, "tc", "class", "add", "dev", "eth0", "parent", "1:", "classid", "1:1", "htb", "rate", rate)
        match = ("u32", "match", "ip", "dst", self.address(to))
        self.run(node, "tc", "filter", "add", "dev", "eth0", "parent", "1:", "protocol", "ip", *match, "flowid", "1:1")

    def run(self, node: int, *command: str) -> None:
        self._ip("netns", "exec", self.space(node), *command)

    def start(self, node: int, command: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["ip", "netns", "exec", self.space(node), *command], env=env, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    @staticmethod
    def _ip(*words: str) -> None:
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
        assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
