"""The rank rule, with the tables of requirement document 000 and the uneven nodes of document 004."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermi.jobs.ranks import assign_worker_slots, order_workers, parse_worker_name, place_nodes, select_first_ranks
from fermi.jobs.spec import Node


def node(id_: str, gpus: int) -> Node:
    return Node(id=id_, name=id_, gpu_type="A100", gpu_count=gpus)


def test_uneven_nodes_get_dense_ranks_with_the_master_first():
    placements = place_nodes([node("env-001", 2), node("env-003", 4), node("env-005", 8)], "env-005")
    assert [(p.node.id, p.node_rank, list(p.ranks)) for p in placements] == [
        ("env-005", 0, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("env-001", 1, [8, 9]),
        ("env-003", 2, [10, 11, 12, 13]),
    ]


def test_a_node_without_gpus_runs_one_process():
    assert [list(p.ranks) for p in place_nodes([node("a", 0), node("b", 2)], "a")] == [[0], [1, 2]]


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
def test_ranks_are_dense_from_zero_for_any_nodes(nodes, data):
    master = data.draw(st.sampled_from(sorted(nodes)))
    placements = place_nodes([node(name, gpus) for name, gpus in nodes.items()], master)
    assert [rank for p in placements for rank in p.ranks] == list(range(sum(max(g, 1) for g in nodes.values())))
    assert placements[0].node.id == master
    assert [p.node.name for p in placements[1:]] == sorted(set(nodes) - {master})


@pytest.mark.parametrize(
    ("workers", "table"),
    [
        (
            ["gn40-0", "gn7-0", "gn6-0", "gn39-0"],
            [("gn6-0", 0, 0, 0), ("gn39-0", 1, 0, 1), ("gn40-0", 2, 0, 2), ("gn7-0", 3, 0, 3)],
        ),
        (
            ["gn7-1", "gn6-1", "gn7-0", "gn6-0"],
            [("gn6-0", 0, 0, 0), ("gn6-1", 1, 1, 0), ("gn7-0", 2, 0, 1), ("gn7-1", 3, 1, 1)],
        ),
    ],
)
def test_workers_have_the_ranks_of_the_requirement_documents_tables(workers, table):
    assert [(at.worker, at.rank, at.local_rank, at.node_rank) for at in assign_worker_slots(workers, "gn6")] == table


def test_a_smaller_world_takes_the_first_ranks():
    seats = assign_worker_slots(["gn6-0", "gn7-1", "gn6-1", "gn7-0"], "gn7", 3)
    assert [(at.worker, at.rank) for at in seats] == [("gn7-0", 0), ("gn7-1", 1), ("gn6-0", 2), ("gn6-1", None)]
    nodes = [Node("a", "gn6", gpu_count=2, engine={"workers": ["gn6-0", "gn6-1"]}), Node("b", "gn7", gpu_count=2)]
    kept = select_first_ranks(nodes, "b", 3)
    assert [(node.name, node.processes) for node in kept] == [("gn7", 2), ("gn6", 1)]
    assert kept[1].engine == {"workers": ["gn6-0"]}
    assert [node.name for node in select_first_ranks(nodes, "b", 2)] == ["gn7"]
    assert select_first_ranks(nodes, "b", 4) == (nodes[1], nodes[0])


@pytest.mark.parametrize("name", ["gn6", "gn6-", "-0", "gn6-01", "gn6-x", "gn6-+1", "gn6-²", "gn/6-0", ""])
def test_an_invalid_worker_name_is_refused(name):
    with pytest.raises(ValueError):
        parse_worker_name(name)
    assert parse_worker_name("a-b-7") == ("a-b", 7)


@given(
    st.dictionaries(st.sampled_from(["gn39", "gn40", "gn6", "gn7", "a", "gn3"]), st.integers(1, 11), min_size=1),
    st.data(),
)
def test_workers_are_placed_with_their_nodes(nodes, data):
    master = data.draw(st.sampled_from(sorted(nodes)))
    size = data.draw(st.integers(1, sum(nodes.values())))
    workers = [f"{name}-{number}" for name, count in nodes.items() for number in range(count)]
    seats = [at for at in assign_worker_slots(workers, master, size) if at.rank is not None]
    placed = place_nodes(select_first_ranks([node(name, count) for name, count in nodes.items()], master, size), master)
    expected = [(rank, local, at.node_rank) for at in placed for local, rank in enumerate(at.ranks)]
    assert [(at.rank, at.local_rank, at.node_rank) for at in seats] == expected
    assert [at.worker for at in seats] == [f"{at.node.name}-{local}" for at in placed for local in range(len(at.ranks))]
