from dataclasses import replace

from fermi.jobs.spec import Node
from fermi.planning.summary import find_warnings, summarize_nodes

A = Node("a", "a", zone="z1", gpu_type="A100", gpu_count=2, cpu_cores=16, memory_gb=128, versions={"torch": "2.5"})
B = replace(A, id="b", name="b", gpu_count=4)
CPU = Node("c", "c", zone="z1", cpu_cores=2, memory_gb=8)


def codes(*nodes: Node, master: str | None = None) -> list[str]:
    return [warning.code for warning in find_warnings(nodes, master)]


def test_a_node_without_gpus_still_runs_one_process() -> None:
    total = summarize_nodes([A, CPU])
    assert (total["totalGpus"], total["worldSize"], total["gpuTypes"]) == (2, 3, ["A100"])


def test_equal_nodes_in_one_zone_give_no_warning() -> None:
    assert codes(A, B, master="a") == []


def test_a_node_without_gpus_among_gpu_nodes_is_a_difference() -> None:
    assert codes(A, CPU) == ["GPU_TYPES_DIFFER"]


def test_a_version_known_for_one_node_is_no_difference() -> None:
    assert codes(A, replace(B, versions={})) == []
    assert codes(A, replace(B, versions={"torch": "2.4"})) == ["VERSIONS_DIFFER"]


def test_the_master_belongs_in_the_zone_with_most_processes() -> None:
    far = replace(B, zone="z2")
    assert "MASTER_NOT_BEST" in codes(A, far, master="a")
    assert "MASTER_NOT_BEST" not in codes(A, far, master="b")
    assert "MASTER_NOT_BEST" not in codes(A, far, replace(A, id="d"), master="a"), "a tie is as good"
    assert "MASTER_NOT_BEST" not in codes(A, far, master="nobody")


def test_emulated_gpus_are_named() -> None:
    [warning] = find_warnings([A, replace(B, emulated=True)])
    assert (warning.code, warning.params) == ("EMULATED_GPUS", {"environments": "b"})
