"""The rank rule, with the tables of requirement document 000 and the uneven nodes of document 004."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermi.launch.ranks import order_workers, place
from fermi.launch.spec import Node


def node(id_: str, gpus: int) -> Node:
    return Node(id=id_, name=id_, gpu_type="A100", gpu_count=gpus)


def test_uneven_nodes_get_dense_ranks_with_the_master_first():
    placements = place([node("env-001", 2), node("env-003", 4), node("env-005", 8)], "env-005")
    assert [(p.node.id, p.node_rank, list(p.ranks)) for p in placements] == [
        ("env-005", 0, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("env-001", 1, [8, 9]),
        ("env-003", 2, [10, 11, 12, 13]),
    ]


def test_a_node_without_gpus_runs_one_process():
    assert [list(p.ranks) for p in place([node("a", 0), node("b", 2)], "a")] == [[0], [1, 2]]


@pytest.mark.parametrize(
    ("workers", "ordered"),
    [
        (["gn40-0", "gn7-0", "gn6-0", "gn39-0"], ["gn6-0", "gn39-0", "gn40-0", "gn7-0"]),
        (["gn7-1", "gn6-1", "gn7-0", "gn6-0"], ["gn6-0", "gn6-1", "gn7-0", "gn7-1"]),
        (["gn6-10", "gn6-9", "gn6-0"], ["gn6-0", "gn6-9", "gn6-10"]),
    ],
)
def test_workers_are_ordered_as_in_the_requirement_document(workers, ordered):
    assert order_workers(workers, "gn6") == ordered


@given(st.dictionaries(st.text("abz019", min_size=1, max_size=5), st.integers(0, 8), min_size=1, max_size=8), st.data())
def test_ranks_are_dense_from_zero_whatever_the_nodes(nodes, data):
    master = data.draw(st.sampled_from(sorted(nodes)))
    placements = place([node(name, gpus) for name, gpus in nodes.items()], master)
    assert [rank for p in placements for rank in p.ranks] == list(range(sum(max(g, 1) for g in nodes.values())))
    assert placements[0].node.id == master
    assert [p.node.name for p in placements[1:]] == sorted(set(nodes) - {master})
