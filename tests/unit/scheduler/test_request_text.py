"""What was asked for in words, what cannot be had at all, and why just these were chosen."""

from typing import Any

from hypothesis import given

from fermi.scheduler.placement import choose_environments
from fermi.scheduler.request_text import check_possible, explain_choice, format_request
from fermi.scheduler.snapshot import EnvironmentInfo, Select
from tests.unit.scheduler.snapshots import fleets, place, selects, waiting


def test_a_request_is_formatted_without_a_language() -> None:
    assert format_request(Select(3, 4, gpu_types=("A100",))) == "3 × 4 A100"
    assert format_request(Select(3)) == "3"
    assert format_request(Select(total_gpus=14, gpu_types=("A100", "V100"))) == "14 A100 / V100"
    assert (
        format_request(Select(1, 2, zones=("z",), labels={"disk": "fast"}), {"z": "zone z"})
        == "1 × 2 GPU · zone z · disk=fast"
    )


@given(selects(), fleets(usable=True))
def test_a_request_is_impossible_if_an_empty_fleet_cannot_serve_it(
    select: Select, places: tuple[EnvironmentInfo, ...]
) -> None:
    found = check_possible(select, "lab", "c", places)
    assert (found is None) == bool(choose_environments(waiting("t", select=select), places))


def test_an_impossible_request_shows_what_each_condition_excludes() -> None:
    places = [
        place("a"),
        place("b", 2),
        place("c", gpu_type="V100", usable=False),
        place("d", shared=False, project="x"),
    ]
    found = check_possible(Select(2, 4, gpu_types=("A100",)), "lab", "c", places)
    assert found is not None
    assert (found.field, found.code) == ("distributedConfig.select", "SELECT_IMPOSSIBLE")
    assert found.params == {"wanted": "2 × 4 A100", "found": "1 × 4 A100", "excluded": "gpusPerNode 1, gpuTypes 1"}
    assert check_possible(Select(2, 4), "lab", "c", places) is None  # what is out of service may come back


def test_a_choice_is_explained() -> None:
    places = [place("a", link="x"), place("b", link="x"), place("c", zone="b"), place("d", health=2)]
    task = waiting("t", select=Select(2, 2))
    chosen = choose_environments(task, places)
    found: dict[str, Any] = {one.code: dict(one.params) for one in explain_choice(task, chosen, places)}
    assert found == {
        "CHOSEN_FEWEST_ZONES": {"zones": "a", "number": 1},
        "CHOSEN_BEST_FIT": {"gpus": 8, "over": 4, "nodes": 2},
        "CHOSEN_HEALTHY": {"avoided": 1},
        "CHOSEN_FAST_LINK": {"nodes": 2},
        "CHOSEN_MASTER": {"environment": "a", "ranks": 2},
    }
