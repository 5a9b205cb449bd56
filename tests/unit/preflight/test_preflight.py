"""What the pre-flight test makes of what nodes say, and what it asks them to do: tables, no network."""

from typing import Any

import pytest

from fermi.engines.kubernetes.render import render
from fermi.jobs.spec import JobSpec, Late, Node
from fermi.messages import LANGUAGES
from fermi.planning import plugins
from fermi.preflight import report as preflight_report
from fermi.preflight import verdict
from fermi.preflight.facts import NodeUnderTest, parse_facts
from fermi.telemetry import nvidia_smi
from fermi.train import preflight, preflight_node

Facts = list[dict[str, Any]]
ENV = {"MASTER_ADDR": "n0", "MASTER_PORT": "29500", "WORLD_SIZE": "4", "RANK": "0", "LOCAL_RANK": "0", "NODE_RANK": "0",
       "LOCAL_WORLD_SIZE": "1"}  # fmt: skip
GPU = {"index": 0, "name": "A100", "totalMb": 81920, "freeMb": 81000, "processes": []}


def node(rank: int, **changes: Any) -> dict[str, Any]:
    torch = {"version": "2.13.0", "gpus": len(changes.get("gpus", ())), **changes.pop("torch", {})}
    seen = {
        "env": {**ENV, "RANK": str(rank)}, "interfaces": {"lo": ["127.0.0.1"], "eth0": [f"10.0.0.{rank}"]},
        "versions": {"python": "3.11.7", "torch": "2.13.0"}, "gpus": [], "disks": [],
        "shm": {"freeMb": 9000, "totalMb": 9000}, **changes,
    }  # fmt: skip
    return {"seen": seen, "torch": torch, "jax": changes.get("jax")}


def healthy(count: int = 4, **nodes: dict[str, Any]) -> Facts:
    """`n2={"shm": …}` changes what node 2 says of itself."""
    facts: Facts = []
    for rank in range(count):
        about = node(rank, **nodes.get(f"n{rank}", {}))
        facts += [
            {"preflight": "hello", "rank": rank, "name": f"n{rank}"},
            {"preflight": "node", "rank": rank, **about["seen"]},
            {"preflight": "head", "rank": rank, "asked": "n0", "port": 29500, "resolved": ["10.0.0.0"], "tries": [],
             "via": 29500},
            {"preflight": "devices", "rank": rank, "torch": about["torch"], "jax": about["jax"]},
            {"preflight": "heard", "rank": rank, "from": [other for other in range(count) if other != rank]},
            {"preflight": "end", "rank": rank},
        ]  # fmt: skip
    for here in range(count):
        for there in range(count):
            if here != there:
                facts.append(pair(here, there))
                facts.append({"preflight": "bandwidth", "rank": here, "to": there, "mbps": 9000.0 + here * 500})
    return facts


def pair(here: int, there: int, **changes: Any) -> dict[str, Any]:
    return {"preflight": "pair", "rank": here, "to": there, "free": "ok", "master": None, "address": f"10.0.0.{there}",
            "rttMs": 0.1, "interface": "eth0", "names": [], **changes}  # fmt: skip


def translate_verdict(
    facts: Facts, count: int = 4, level: str = "quick", framework: str = "pytorch-ddp", gpus: int = 0
) -> Any:
    members = [NodeUnderTest(rank, f"env-{rank}", f"n{rank}", gpus) for rank in range(count)]
    report = verdict.build_report(members, facts, level, framework)
    for lang in LANGUAGES:  # whatever is found has words, and all the words have what they need
        preflight_report.translate_report(report, lang)
    return report


def culprits(report: Any) -> list[tuple[str, str, list[int]]]:
    return [
        (one["level"], one["code"].removeprefix("PREFLIGHT_"), sorted(int(key[-1]) for key in one["nodes"]))
        for one in report["verdict"]["culprits"]
    ]


def dead(facts: Facts, *ways: tuple[int, int], udp: bool = False) -> Facts:
    """Ways by which no connection is made, and no datagram comes unless `udp`."""
    changed: Facts = []
    for fact in facts:
        if fact["preflight"] == "pair" and (fact["rank"], fact["to"]) in ways:
            fact = {**fact, "free": "timeout", "rttMs": None}
        if fact["preflight"] == "heard" and not udp:
            fact = {**fact, "from": [other for other in fact["from"] if (other, fact["rank"]) not in ways]}
        changed.append(fact)
    return changed


def both(*links: tuple[int, int]) -> list[tuple[int, int]]:
    return [way for a, b in links for way in ((a, b), (b, a))]


def test_healthy_nodes_have_no_finding():
    report = translate_verdict(healthy())
    assert report["verdict"] == {
        "level": "pass", "code": "PREFLIGHT_VERDICT_PASS", "params": {"nodes": 4, "pairs": 12, "count": 0},
        "culprits": [],
    }  # fmt: skip
    assert {one["level"] for one in (*report["nodes"], *report["pairs"])} == {"pass"}


def test_lines_that_are_no_facts_are_skipped():
    text = b'hello\n{"preflight": "hello", "rank": 1}\n{"preflight": torn\n{"step": 1}\n{"preflight": "x"}\n'
    assert list(parse_facts(text)) == [{"preflight": "hello", "rank": 1}]


@pytest.mark.parametrize(
    ("ways", "found"),
    [
        (both((1, 2)), [("fail", "LINK_DEAD", [1, 2])]),
        (both((0, 3), (1, 3), (2, 3)), [("fail", "NODE_CUT_OFF", [3])]),
        (both((0, 1), (2, 3)), [("fail", "LINK_DEAD", [0, 1]), ("fail", "LINK_DEAD", [2, 3])]),
        (both((0, 1), (0, 2), (0, 3)), [("fail", "NODE_CUT_OFF", [0])]),
    ],
)
def test_dead_links_are_blamed_on_the_fewest_nodes(ways, found):
    report = translate_verdict(dead(healthy(), *ways))
    assert culprits(report) == found
    failed = {(int(p["from"][-1]), int(p["to"][-1])) for p in report["pairs"] if p["level"] == "fail"}
    assert failed == set(ways)


def test_where_no_node_reaches_another_none_is_blamed():
    report = translate_verdict(dead(healthy(3), *both((0, 1), (0, 2), (1, 2))), 3)
    assert {code for _, code, _ in culprits(report)} == {"LINK_DEAD"}
    assert len(culprits(report)) == 3


def test_datagrams_show_the_dead_direction():
    facts = dead(healthy(), (2, 1), udp=True)
    facts = dead(facts, (1, 2))  # both connections fail, and only what 2 sends arrives
    assert culprits(translate_verdict(facts)) == [("fail", "LINK_ONE_WAY", [1, 2])]
    [culprit] = translate_verdict(facts)["verdict"]["culprits"]
    assert (culprit["params"]["from"], culprit["params"]["to"]) == ("n1", "n2")


def test_a_firewall_is_no_dead_link():
    assert culprits(translate_verdict(dead(healthy(), *both((1, 2)), udp=True))) == [("fail", "PORTS_BLOCKED", [1, 2])]
    assert culprits(translate_verdict(dead(healthy(), (1, 2), udp=True))) == [("fail", "PORTS_BLOCKED", [1, 2])]


def without_head(facts: Facts, rank: int, **head: Any) -> Facts:
    """`rank` did not find the head, so nobody tested anything with it."""
    kept = [f for f in facts if not (f["preflight"] in ("pair", "bandwidth") and rank in (f["rank"], f["to"]))]
    for fact in kept:
        if fact["preflight"] == "head" and fact["rank"] == rank:
            fact.update({"via": None, "tries": [{"address": "10.0.0.0", "port": 29500, "result": "timeout"}], **head})
        if fact["preflight"] == "heard":
            fact["from"] = [other for other in fact["from"] if rank not in (other, fact["rank"])]
    return kept


@pytest.mark.parametrize(
    ("head", "found"),
    [
        ({}, ("fail", "LINK_DEAD", [0, 2])),
        ({"late": True}, ("fail", "NODE_LATE", [2])),
        ({"resolved": []}, ("fail", "NAME_UNKNOWN", [2])),
        ({"resolved": ["10.9.9.9"], "source": "/etc/hosts:7"}, ("fail", "NAME_WRONG", [2])),
        ({"asked": "10.9.9.9", "resolved": ["10.9.9.9"]}, ("fail", "MASTER_ADDR_WRONG", [2])),
    ],
)
def test_a_node_that_cannot_find_the_head_gives_the_reason(head, found):
    report = translate_verdict(without_head(healthy(), 2, **head))
    assert culprits(report) == [found]
    assert {p["level"] for p in report["pairs"] if p["from"] == "env-2" and p["to"] != "env-0"} == {"unknown"}


@pytest.mark.parametrize(("blocked", "found"), [
    ([1, 2, 3], [("fail", "MASTER_PORT_CLOSED", [0])]),
    ([2], [("fail", "MASTER_PORT_BLOCKED", [2])]),
])  # fmt: skip
def test_a_master_port_blocked_for_all_is_the_heads_problem(blocked, found):
    facts = healthy()
    for fact in facts:
        if fact["preflight"] == "head" and fact["rank"] in blocked:
            fact.update(via=61000, tries=[{"address": "10.0.0.0", "port": 29500, "result": "timeout"}])
    assert culprits(translate_verdict(facts)) == found


def test_a_busy_master_port_explains_failed_connections():
    facts = healthy()
    for fact in facts:
        if fact["preflight"] == "head":
            fact.update(via=61000, taken="Address already in use" if fact["rank"] == 0 else "")
    assert culprits(translate_verdict(facts)) == [("fail", "MASTER_PORT_TAKEN", [0])]


@pytest.mark.parametrize(("answers", "found"), [
    ({1: True, 2: False, 3: True}, [("warn", "NAME_WRONG", [2])]),
    ({1: False, 2: False, 3: False}, []),  # nobody knows it: a name that only the platform uses
])  # fmt: skip
def test_a_wrong_name_resolution_is_found_by_comparison(answers, found):
    facts = healthy()
    for fact in facts:
        if fact["preflight"] == "pair" and fact["to"] == 0:
            name = {"asked": "n0", "resolved": ["10.0.0.7"], "right": answers[fact["rank"]], "source": ""}
            fact["names"] = [name]
    assert culprits(translate_verdict(facts)) == found


def speeds(facts: Facts, **mbps: float) -> Facts:
    """`s12=10` : from 1 to 2."""
    by_pair = {(int(name[1]), int(name[2])): value for name, value in mbps.items()}
    return [
        {**f, "mbps": by_pair.get((f["rank"], f["to"]), f["mbps"])} if f["preflight"] == "bandwidth" else f
        for f in facts
    ]


@pytest.mark.parametrize(
    ("count", "mbps", "found"),
    [
        (4, {}, []),
        (4, {"s12": 3000}, []),  # a third is what a busy machine does to a measurement
        (4, {"s12": 900}, [("warn", "LINK_SLOW", [1, 2])]),
        (4, {"s12": 90, "s21": 90}, [("fail", "LINK_SLOW", [1, 2])]),
        (4, {"s20": 90, "s21": 90, "s23": 90}, [("fail", "NODE_SLOW", [2])]),
        (4, {"s02": 900, "s12": 900, "s32": 900}, [("warn", "NODE_SLOW", [2])]),
        (3, {"s20": 90, "s21": 90, "s02": 90, "s12": 90}, [("fail", "NODE_SLOW", [2])]),
        (2, {"s01": 90, "s10": 9000}, [("fail", "LINK_SLOW", [0, 1])]),
        (2, {"s01": 90, "s10": 90}, [("warn", "LINK_SLOW", [0, 1])]),  # slow whatever the others do
        (2, {"s01": 900, "s10": 900}, []),
    ],
)
def test_slow_links_are_found_by_comparison(count, mbps, found):
    facts = [f for f in healthy(count) if f.get("to", 0) < count]
    assert culprits(translate_verdict(speeds(facts, **mbps), count)) == found


def test_the_best_of_several_measurements_counts():
    again = {"preflight": "bandwidth", "rank": 1, "to": 2, "mbps": 8000.0}
    assert culprits(translate_verdict([*speeds(healthy(), s12=20), again])) == []


def test_loopback_speed_is_no_finding():
    facts = speeds(healthy(), s12=20)
    for fact in facts:
        if fact["preflight"] == "pair":
            fact["address"] = "127.0.0.1"
    assert culprits(translate_verdict(facts)) == []


def test_a_distant_node_is_a_notice():
    facts = [
        pair(f["rank"], f["to"], rttMs=35.0) if f["preflight"] == "pair" and 3 in (f["rank"], f["to"]) else f
        for f in healthy()
    ]
    assert {code for _, code, _ in culprits(translate_verdict(facts))} == {"LINK_FAR"}
    assert translate_verdict(facts)["verdict"]["level"] == "warn"


def versions(**changed: str) -> dict[str, Any]:
    return {
        "versions": {"python": "3.11.7", "torch": "2.13.0", **changed},
        "torch": {"version": changed.get("torch", "2.13.0")},
    }


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ({"n1": versions(torch="2.4.1")}, [("fail", "VERSION_DRIFT", [1])]),
        ({"n1": versions(torch="2.13.1+cu128")}, []),
        ({"n1": versions(python="3.12.1")}, [("warn", "VERSION_DRIFT", [1])]),
        ({"n1": versions(python="3.11.2")}, []),
        ({"n0": versions(torch="2.4.1"), "n1": versions(torch="2.4.1")}, [("fail", "VERSION_DRIFT", [0, 1, 2, 3])]),
        ({"n1": versions(driver="535.104"), "n2": versions(driver="550.54")}, []),  # of nodes without a GPU
    ],
)
def test_versions_are_compared_as_far_as_they_must_agree(nodes, found):
    assert culprits(translate_verdict(healthy(**nodes))) == found


@pytest.mark.parametrize(
    ("changes", "gpus", "found"),
    [
        ({"shm": {"freeMb": 64, "totalMb": 64}}, 0, [("warn", "SHM_LOW")]),
        ({"disks": [{"path": "/data", "freeMb": 900, "totalMb": 9000}]}, 0, [("warn", "DISK_LOW")]),
        ({"disks": [{"path": "/data", "freeMb": 9, "totalMb": 9000}]}, 0, [("fail", "DISK_LOW")]),
        ({"env": {**ENV, "RANK": ""}}, 0, [("fail", "VARIABLE_MISSING")]),
        ({"env": {**ENV, "RANK": "4"}}, 0, [("fail", "VARIABLE_WRONG")]),
        ({"env": {**ENV, "NCCL_SOCKET_IFNAME": "=ib0"}}, 0, [("fail", "INTERFACE_UNKNOWN")]),
        ({"env": {**ENV, "NCCL_SOCKET_IFNAME": "eth"}}, 0, []),
        ({"env": {**ENV, "NCCL_SOCKET_IFNAME": "^docker,lo"}}, 0, []),
        ({"torch": {"error": "ImportError: libcudart.so.12"}}, 0, [("fail", "STACK_BROKEN")]),
        ({"gpus": [GPU], "torch": {"gpus": 0}}, 1, [("fail", "DEVICES_MISSING")]),
        ({"gpus": [{**GPU, "freeMb": 50000, "processes": [{"pid": 7, "name": "python", "memoryMb": 31000}]}]}, 1,
         [("warn", "GPU_MEMORY_HELD")]),
        ({"gpus": [{**GPU, "freeMb": 500}]}, 1, [("fail", "GPU_MEMORY_HELD")]),
    ],
)  # fmt: skip
def test_each_node_is_checked_by_itself(changes, gpus, found):
    others = {f"n{rank}": {"gpus": [GPU]} for rank in range(3) if gpus}
    report = translate_verdict(healthy(**others, n3=changes), gpus=gpus)
    assert [(level, code) for level, code, _ in culprits(report)] == found
    assert all(blamed == [3] for *_, blamed in culprits(report))


def test_a_silent_node_is_named():
    facts = [f for f in without_head(healthy(), 3) if f["rank"] != 3]
    assert culprits(translate_verdict(facts)) == [("fail", "NODE_SILENT", [3])]
    assert translate_verdict([])["verdict"]["level"] == "fail"


def test_a_node_that_stopped_half_way_is_named():
    facts = [f for f in healthy() if (f["preflight"], f["rank"]) != ("end", 1)]
    assert culprits(translate_verdict(facts)) == [("fail", "NODE_CUT_SHORT", [1])]


@pytest.mark.parametrize(
    ("said", "level", "found"),
    [
        ({"allReduceMs": 3.0, "barrierMs": 0.2, "backend": "gloo", "megabytes": 16}, "pass", []),
        ({"error": "RuntimeError: connect refused"}, "fail", [("fail", "TOGETHER_FAILED", [0, 1, 2, 3])]),
        ({"skipped": "torch"}, "unknown", [("warn", "TOGETHER_SKIPPED_TORCH", [])]),
    ],
)
def test_collective_tests_count_too(said, level, found):
    facts = [*healthy(), *({"preflight": "together", "rank": rank, **said} for rank in range(4))]
    report = translate_verdict(facts, level="full")
    assert (report["together"]["level"], culprits(report)) == (level, found)


# What runs on the nodes -----------------------------------------------------------------------------------------------


def test_a_plan_has_one_process_per_node_with_all_its_gpus():
    nodes = (
        Node("env-1", "b", gpu_type="A100", gpu_count=8, ip="10.0.0.1"),
        Node("env-2", "a", gpu_count=2, emulated=True),
    )
    job = JobSpec("preflight-x", "preflight", nodes, "env-1", options={"level": "full"}, attempt=1)
    plan = plugins.get_planner("preflight").plan(job)
    assert plan.world_size == 2
    assert [len(each.processes) for each in plan.nodes] == [1, 1]
    assert [each.node.gpu_count for each in plan.nodes] == [8, 2]
    assert plan.nodes[0].command == (Late.PYTHON, "-u", "-m", "fermi.train.preflight")
    assert [(each.env["WORLD_SIZE"], each.env["LOCAL_WORLD_SIZE"]) for each in plan.nodes] == [("2", "1")] * 2
    order = preflight.PreflightOrder({"FERMI_PREFLIGHT": str(plan.nodes[0].env["FERMI_PREFLIGHT"])})
    assert (order.name, order.full, order.names[-1]) == ("b", True, "10.0.0.1")
    assert [member.gpus for member in verdict.list_members(job)] == [8, 0]


def test_a_pod_gets_all_files():
    job = JobSpec("preflight-x", "preflight", (Node("env-1", "b", image="image"),), "env-1", attempt=1)
    *_, modules = render(job, plugins.get_planner("preflight").plan(job), {}).artifacts
    for name in ("preflight", "preflight_net", "preflight_node"):
        assert f"fermi__train__{name}.py" in modules.content["data"]


def test_it_cannot_be_chosen_as_a_framework():
    assert "preflight" not in plugins.FRAMEWORKS


SMI = """\
0, GPU-aaaa1111-2222, 81920, 4, 550.54.15, NVIDIA A100-SXM4-80GB
1, GPU-bbbb1111-2222, 81920, 31337, 550.54.15, NVIDIA A100-SXM4-80GB
2, GPU-cccc1111-2222, [N/A], [N/A], 550.54.15, NVIDIA A100-SXM4-80GB
"""
HOLDERS = """\
GPU-bbbb1111-2222, 4242, 31300, /opt/runs, old/python3
GPU-cccc1111-2222, 17, [N/A], [Insufficient Permissions]
"""


def read_smi(visible):
    gpus, holders = (
        nvidia_smi.parse_rows(SMI, preflight_node.SMI_GPU_FIELDS),
        nvidia_smi.parse_rows(HOLDERS, preflight_node.SMI_PROCESS_FIELDS),
    )
    return preflight_node.combine_smi_rows(gpus, holders, visible)


def test_nvidia_smi_output_is_parsed():
    gpus, driver = read_smi(None)
    assert driver == "550.54.15"
    assert [(gpu["index"], gpu["totalMb"], gpu["freeMb"]) for gpu in gpus] == [
        (0, 81920, 81916), (1, 81920, 50583), (2, 0, 0),
    ]  # fmt: skip
    assert gpus[1]["processes"] == [{"pid": 4242, "name": "python3", "memoryMb": 31300}]
    assert gpus[2]["processes"] == [{"pid": 17, "name": "", "memoryMb": 0}]


@pytest.mark.parametrize(("visible", "indices"), [("0,2", [0, 2]), ("GPU-bbbb", [1]), ("", []), (None, [0, 1, 2])])
def test_only_visible_gpus_count(visible, indices):
    assert [gpu["index"] for gpu in read_smi(visible)[0]] == indices


def test_each_round_has_disjoint_pairs_and_all_pairs_occur():
    pairs = [(a, b) for a in range(7) for b in range(7) if a != b]
    made = preflight.schedule_rounds(pairs)
    assert sorted(pair for one in made for pair in one) == sorted(pairs)
    for one in made:
        nodes = [rank for pair in one for rank in pair]
        assert len(nodes) == len(set(nodes))
