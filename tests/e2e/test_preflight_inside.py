"""The pre-flight test inside of environments between which nothing passes, as a NetworkPolicy has it: the firewall of
one pod drops what comes from another. Real node runners in network namespaces (`tests.netlab`)."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fermi import messages
from fermi.engines.inside.bundle import build_command
from fermi.engines.inside.render import RENDEZVOUS_SECONDS, render_node
from fermi.engines.inside.session import InsideSession
from fermi.jobs.spec import JobSpec, Node, RunLocation
from fermi.preflight import PREFLIGHT, plan, verdict
from tests import netlab
from tests.netlab import Lab

pytestmark = [pytest.mark.e2e]
WITHOUT_STACK = getattr(sys, "_base_executable", sys.executable)
"""The interpreter below the virtual environment: neither torch nor JAX, so that a node is quick."""


@pytest.fixture(autouse=True, scope="module")
def possible() -> None:
    if why := netlab.missing():
        pytest.skip(why)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(2) as lab:
        yield lab


def job(lab: Lab) -> JobSpec:
    nodes = tuple(
        Node(f"env-{node}", f"lab-{node}", ip=lab.address(node), engine={"pod": f"dev-{node}"},
             way=RunLocation(True, "WAY_INSIDE_RUNS"))
        for node in lab.nodes
    )  # fmt: skip
    options = {"level": "quick", "patience": 10}
    return JobSpec("preflight-x", PREFLIGHT, nodes, "env-0", attempt=1, python=WITHOUT_STACK, options=options)


def enter(lab: Lab, node: int, home: Path) -> InsideSession:
    home.mkdir(parents=True, exist_ok=True)
    ours, theirs = socket.socketpair()
    with theirs:
        subprocess.Popen(
            ["ip", "netns", "exec", lab.space(node), *build_command(WITHOUT_STACK)], stdin=theirs, stdout=theirs,
            env={"HOME": str(home), "PATH": os.environ["PATH"]}, cwd=home,
        )  # fmt: skip
    return InsideSession(ours).greet()


def test_pods_that_cannot_reach_each_other_are_named_with_address_and_policy(lab: Lab, tmp_path: Path) -> None:
    lab.drop(0, "-s", lab.address(1))
    lab.drop(1, "-s", lab.address(0))
    report = carried_out(lab, tmp_path)
    assert report["verdict"]["level"] == "fail"
    culprits = report["verdict"]["culprits"]
    (culprit,) = [one for one in culprits if one["code"] != "PREFLIGHT_STACK_ABSENT"]
    assert (culprit["code"], sorted(culprit["nodes"])) == ("PREFLIGHT_LINK_DEAD", ["env-0", "env-1"])
    message, hint = messages.render_text(culprit["code"], "en", **culprit["params"])
    assert f"{lab.address(0)}:29500: timeout" in message
    assert "lab-1 and lab-0" in message
    assert "dev-1, dev-0" in message
    assert "NetworkPolicy" in hint


def test_pods_that_reach_each_other_pass(lab: Lab, tmp_path: Path) -> None:
    report = carried_out(lab, tmp_path)
    assert [pair["level"] for pair in report["pairs"]] == ["pass", "pass"], report


def carried_out(lab: Lab, tmp_path: Path) -> dict[str, Any]:
    """What is found by the nodes' own runners, begun as an engine begins them."""
    spec = job(lab)
    made = plan(spec)
    orders = [render_node(spec, made, node, {}, root="/nowhere").content for node in made.nodes]
    assert {order["meeting"]["patience"] for order in orders} == {RENDEZVOUS_SECONDS}
    said: list[list[bytes]] = [[] for _ in orders]

    def carry_out(node: int) -> None:
        with enter(lab, node, tmp_path / f"home-{node}") as session:
            session.request("begin", order=orders[node], head=lab.address(0), secrets={})
            session.request("follow", of=orders[node]["name"], node=node, ranks={str(node): 0})
            for told, data in session.messages(120):
                if "log" in told:
                    said[node].append(data)
                elif (told.get("status") or {}).get("drained"):
                    return

    running = [threading.Thread(target=carry_out, args=[node]) for node in lab.nodes]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    facts = [fact for output in said for fact in verdict.parse_facts(b"".join(output))]
    return verdict.build_report(verdict.list_members(spec), facts, "quick")
