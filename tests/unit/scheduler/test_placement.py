"""Which environments are chosen: against every possible choice on small fleets, and by hand."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fermi.scheduler.gpu_packing import choose_sizes
from fermi.scheduler.placement import choose_environments, is_open_to, matches_request
from fermi.scheduler.snapshot import EnvironmentInfo, Select
from tests.unit.scheduler.snapshots import fleets, place, selects, waiting


def names(places: Sequence[EnvironmentInfo]) -> list[str]:
    return [one.id for one in places]


def left_over(select: Select, places: Sequence[EnvironmentInfo]) -> int:
    if select.total_gpus is not None:
        return sum(one.gpus for one in places) - select.total_gpus
    return sum(one.gpus - (select.gpus_per_node or 0) for one in places)


def by_trying_all(select: Select, free: Sequence[EnvironmentInfo]) -> tuple[int, ...] | None:
    """Zones, GPUs left over, environments of the best."""
    fit = [one for one in free if is_open_to("lab", "c", one) and matches_request(select, one)]
    best = None
    for count in range(1, len(fit) + 1):
        for some in combinations(fit, count):
            zones = len({one.zone for one in some})
            if select.total_gpus is None:
                ok = count == (select.nodes or 1)
            else:
                ok = left_over(select, some) >= 0 and select.nodes in (None, count)
            if ok and (not select.same_zone or zones == 1):
                found: Any = (zones, left_over(select, some), count)
                if select.total_gpus is None:
                    found = (*found, sum(one.health for one in some))
                best = found if best is None else min(best, found)
    return best


@given(selects(), fleets())
def test_no_choice_is_better_by_zones_gpus_left_over_number_and_health(
    select: Select, free: tuple[EnvironmentInfo, ...]
) -> None:
    chosen = choose_environments(waiting("t", select=select), free)
    best = by_trying_all(select, free)
    if best is None:
        assert chosen == []
        return
    assert all(is_open_to("lab", "c", one) and matches_request(select, one) for one in chosen)
    assert len(set(names(chosen))) == len(chosen)
    found: tuple[int, ...] = (len({one.zone for one in chosen}), left_over(select, chosen), len(chosen))
    if select.total_gpus is None:
        found = (*found, sum(one.health for one in chosen))
    assert found == best
    assert chosen[0].processes == max(one.processes for one in chosen)


@given(selects(), fleets(), st.randoms())
def test_the_order_of_the_fleet_does_not_matter(select: Select, free: tuple[EnvironmentInfo, ...], random: Any) -> None:
    task = waiting("t", select=select)
    mixed = list(free)
    random.shuffle(mixed)
    assert names(choose_environments(task, mixed)) == names(choose_environments(task, free))


counts = st.dictionaries(st.sampled_from((1, 2, 3, 4, 5, 6, 7, 8)), st.integers(1, 6), min_size=1, max_size=4)


@given(counts, st.integers(1, 60), st.none() | st.integers(1, 8))
def test_a_combination_of_sizes_is_exact_or_the_nearest_above(
    there: dict[int, int], total: int, nodes: int | None
) -> None:
    reached = {(0, 0)}
    for size, count in there.items():
        reached = {(used + n, gpus + n * size) for used, gpus in reached for n in range(count + 1)}
    best = min(((gpus, used) for used, gpus in reached if gpus >= total and nodes in (None, used)), default=None)
    found = choose_sizes(there, total, nodes)
    assert (found is None) == (best is None)
    if found is not None:
        assert all(0 < count <= there[size] for size, count in found.items())
        assert (sum(size * count for size, count in found.items()), sum(found.values())) == best


def test_a_combination_for_thousands_of_gpus_is_found() -> None:
    for there, total, nodes in (
        ({8: 600, 6: 300}, 4999, None), ({8: 4000, 4: 900}, 20_001, None), ({8: 900, 4: 900}, 5000, 1000),
    ):  # fmt: skip
        found = choose_sizes(there, total, nodes)
        assert found is not None
        over = sum(size * count for size, count in found.items()) - total
        assert 0 <= over < 8
        assert nodes in (None, sum(found.values()))


def test_fourteen_gpus_are_two_and_four_and_eight_before_two_of_eight() -> None:
    free = [place("a", 8), place("b", 8), place("c", 4), place("d", 2)]
    assert names(choose_environments(waiting("t", select=Select(total_gpus=14)), free)) == ["a", "c", "d"]


def test_environments_of_one_link_and_without_failures_are_preferred() -> None:
    free = [place("a", link="x"), place("b", link="y"), place("c", link="x"), place("d", link="y", health=1)]
    assert sorted(names(choose_environments(waiting("t", select=Select(2, 4)), free))) == ["a", "c"]
    free[0] = place("a", link="x", health=1)
    assert sorted(names(choose_environments(waiting("t", select=Select(2, 4)), free))) == ["b", "c"]


def test_the_master_is_where_most_ranks_are_and_neighbours_are_adjacent() -> None:
    free = [place("a", 2), place("b", 8, zone="b"), place("c", 4), place("d", 4, zone="b")]
    assert names(choose_environments(waiting("t", select=Select(total_gpus=18)), free)) == ["b", "d", "c", "a"]


def test_all_environments_are_of_one_cluster() -> None:
    free = [place("a"), place("b", cluster="d"), place("c", cluster="d")]
    assert names(choose_environments(waiting("t", select=Select(2), cluster=""), free)) == ["b", "c"]
