"""The pre-flight test on three nodes with a network of their own (`tests.netlab`): each fault is named, and nothing is
where nothing is wrong."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fermi import messages
from fermi.preflight import verdict
from fermi.preflight.facts import NodeUnderTest
from tests import netlab
from tests.netlab import Lab

ROOT = Path(__file__).resolve().parents[2]
PORT = 29500
NODES = 3
WITHOUT_STACK = getattr(sys, "_base_executable", sys.executable)
"""The interpreter below the virtual environment: neither torch nor JAX, so that a node is quick."""

pytestmark = [pytest.mark.e2e]


@pytest.fixture(autouse=True, scope="module")
def possible() -> None:
    if why := netlab.missing():
        pytest.skip(why)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(NODES) as lab:
        yield lab


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A torch of each version, as far as the test looks at it."""
    return {version: stack(tmp_path_factory.mktemp("stack"), version) for version in ("2.13.0", "2.4.1")}


def stack(folder: Path, version: str) -> Path:
    info, package = folder / f"torch-{version}.dist-info", folder / "torch"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    package.mkdir()
    (package / "__init__.py").write_text(
        f"from types import SimpleNamespace as S\n__version__ = {version!r}\nversion = S(cuda=None)\n"
        "cuda = S(is_available=lambda: False)\n"
    )
    return folder


class Outcome:
    """The report, and what is wrong in it as (level, code, names of who is to blame)."""

    def __init__(self, facts: list[dict[str, Any]], level: str, seconds: float) -> None:
        members = [NodeUnderTest(rank, f"node-{rank}", f"node-{rank}", 0) for rank in range(NODES)]
        self.report = verdict.build_report(members, facts, level, "pytorch-ddp")
        self.seconds = seconds
        self.level = self.report["verdict"]["level"]
        self.culprits = [
            (one["level"], one["code"].removeprefix("PREFLIGHT_"), sorted(one["nodes"]))
            for one in self.report["verdict"]["culprits"]
        ]
        self.pairs = {(one["from"][-1], one["to"][-1]): one["level"] for one in self.report["pairs"]}

    def text(self) -> str:
        [first, *_] = self.report["verdict"]["culprits"]
        return messages.render_text(first["code"], "en", **first["params"])[0]

    def broken(self) -> set[tuple[str, str]]:
        return {pair for pair, level in self.pairs.items() if level == "fail"}


def preflight(
    lab: Lab, stacks: list[Path] | None = None, level: str = "quick", master: str = "node-0", patience: float = 60
) -> Outcome:
    """On all nodes at once; without `stacks`, with the torch that is installed. A node of a healthy set never waits as
    long as `patience`; one that can never come is waited for."""
    python = WITHOUT_STACK if stacks else sys.executable
    began = time.monotonic()
    running = [
        lab.start(node, [python, "-u", "-m", "fermi.train.preflight"], env(node, stacks, level, master, patience))
        for node in range(NODES)
    ]
    try:
        said = [process.communicate(timeout=240) for process in running]
    finally:
        for process in running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    took = time.monotonic() - began
    assert [process.returncode for process in running] == [0] * NODES, b"".join(errors for _, errors in said).decode()
    facts = [fact for output, _ in said for fact in verdict.parse_facts(output)]
    return Outcome(facts, level, took)


def env(node: int, stacks: list[Path] | None, level: str, master: str, patience: float) -> dict[str, str]:
    path = [str(ROOT / "platform"), *([str(stacks[node])] if stacks else [])]
    order = {"level": level, "name": f"node-{node}", "patience": patience, "stacks": ["torch"]}
    return {
        "PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(path),
        "MASTER_ADDR": master, "MASTER_PORT": str(PORT), "WORLD_SIZE": str(NODES), "RANK": str(node),
        "NODE_RANK": str(node), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GLOO_SOCKET_IFNAME": "eth0",
        "FERMI_PREFLIGHT": json.dumps(order),
    }  # fmt: skip


def test_a_healthy_cluster_passes(lab, stacks):
    for _ in range(3):
        found = preflight(lab, [stacks["2.13.0"]] * NODES)
        assert (found.level, found.culprits) == ("pass", []), found.report
        assert set(found.pairs.values()) == {"pass"}
    [interface, *_] = [one for one in found.report["nodes"][1]["findings"] if one["check"] == "interface"]
    assert interface["value"] == {"NCCL_SOCKET_IFNAME": "=eth0"}


def test_a_healthy_cluster_passes_the_full_test(lab):
    found = preflight(lab, level="full")
    assert (found.level, found.culprits) == ("pass", []), found.report
    assert set(found.pairs.values()) == {"pass"}
    assert all(pair["bandwidthMbps"] and pair["rttMs"] for pair in found.report["pairs"])
    assert found.report["together"]["level"] == "pass"
    assert found.report["together"]["allReduceMs"] > 0


def test_a_master_port_blocked_for_all_is_the_heads_problem(lab, stacks):
    lab.drop(0, "-p", "tcp", "--dport", str(PORT))
    found = preflight(lab, [stacks["2.13.0"]] * NODES)
    assert found.culprits == [("fail", "MASTER_PORT_CLOSED", ["node-0"])]
    assert found.broken() == {("1", "0"), ("2", "0")}
    assert "master port 29500 of node-0" in found.text()


def test_a_master_port_blocked_for_one_node_is_that_nodes_problem(lab, stacks):
    lab.drop(0, "-s", lab.address(2), "-p", "tcp", "--dport", str(PORT))
    found = preflight(lab, [stacks["2.13.0"]] * NODES)
    assert found.culprits == [("fail", "MASTER_PORT_BLOCKED", ["node-2"])]
    assert found.broken() == {("2", "0")}


def test_a_dead_link_is_named_and_its_nodes_are_not_blamed(lab, stacks):
    lab.drop(1, "-s", lab.address(2))
    lab.drop(2, "-s", lab.address(1))
    found = preflight(lab, [stacks["2.13.0"]] * NODES)
    assert found.culprits == [("fail", "LINK_DEAD", ["node-1", "node-2"])]
    assert found.broken() == {("1", "2"), ("2", "1")}


def test_a_one_way_dead_link_names_its_direction(lab, stacks):
    lab.drop(2, "-s", lab.address(1))
    found = preflight(lab, [stacks["2.13.0"]] * NODES)
    assert found.culprits == [("fail", "LINK_ONE_WAY", ["node-1", "node-2"])]
    assert "from node-1 to node-2 are lost" in found.text()


def test_a_node_that_receives_nothing_from_the_head_is_named(lab, stacks):
    lab.drop(2, "-s", lab.address(0))
    found = preflight(lab, [stacks["2.13.0"]] * NODES, patience=10)
    assert found.culprits == [("fail", "LINK_ONE_WAY", ["node-0", "node-2"])]
    assert "from node-0 to node-2 are lost" in found.text()
    assert found.pairs["1", "2"] == "unknown"


def test_a_firewall_that_allows_only_the_master_port_is_named(lab, stacks):
    lab.run(0, "iptables", "-A", "INPUT", "-p", "tcp", "--syn", "!", "--dport", str(PORT), "-j", "DROP")
    found = preflight(lab, [stacks["2.13.0"]] * NODES)
    assert found.broken() == {("1", "0"), ("2", "0")}
    assert found.culprits == [("fail", "NODE_PORTS_BLOCKED", ["node-0"])]


@pytest.mark.parametrize(
    ("master", "entry"), [("node-0", "10.77.0.99"), ("10.77.0.1", "10.77.0.99"), ("10.77.0.1", "127.0.1.1")]
)
def test_a_wrong_hosts_entry_is_named_with_its_line(lab, stacks, master, entry):
    """Of the head's name, by which it is looked for; or of a name that only people use."""
    lab.hosts(2, {"node-0": entry, "node-1": "10.77.0.2", "node-2": "10.77.0.3"})
    found = preflight(lab, [stacks["2.13.0"]] * NODES, master=master, patience=10)
    [(level, code, blamed)] = found.culprits
    assert (code, blamed) == ("NAME_WRONG", ["node-2"])
    assert level == ("fail" if master == "node-0" else "warn")
    assert f"node-0, the host name of node-0, to {entry} instead of 10.77.0.1 (from /etc/hosts:2)" in found.text()


def test_a_node_with_another_torch_version_is_named(lab, stacks):
    found = preflight(lab, [stacks["2.13.0"], stacks["2.4.1"], stacks["2.13.0"]])
    assert found.culprits == [("fail", "VERSION_DRIFT", ["node-1"])]
    assert found.text() == "Versions of torch differ: node-1 2.4.1; the other nodes have 2.13.0."


def test_a_slow_link_is_named(lab):
    lab.slow_down(1, to=2)
    found = preflight(lab, level="full")
    assert [(code, blamed) for _, code, blamed in found.culprits] == [("LINK_SLOW", ["node-1", "node-2"])]
    assert found.pairs["1", "2"] == "fail"
    assert set(found.pairs.values()) == {"pass", "fail"}


def test_a_slow_node_is_named_instead_of_its_links(lab):
    lab.slow_down(2)
    found = preflight(lab, level="full")
    assert [(code, blamed) for _, code, blamed in found.culprits] == [("NODE_SLOW", ["node-2"])]
