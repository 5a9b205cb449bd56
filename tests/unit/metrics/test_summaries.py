"""What curves come to: over attempts, sources and patterns, whatever users change about names."""

import json
import math
from collections.abc import Mapping
from typing import Any

from fermi.metrics import summaries
from fermi.metrics.summaries import Summary, add_values, combine_attempts


def summarize(
    *points: tuple[int, Mapping[str, float | None]], source: str = "json", pattern: str = ""
) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for step, values in points:
        add_values(state, source, pattern, step, values)
    return state


def test_last_lowest_and_highest_values_have_the_steps_of_their_first_report() -> None:
    state = summarize(*((step, {"loss": value}) for step, value in enumerate([3.0, 9.0, 1.0, 1.0, 9.0, 2.0])))
    assert combine_attempts([state], {}) == {"loss": Summary(6, 2.0, 5, 1.0, 2, 9.0, 1)}


def test_values_that_are_not_finite_are_not_counted() -> None:
    state = summarize((1, {"loss": 2.0}), (2, {"loss": None}), (3, {"loss": math.inf}), (4, {"lr": math.nan}))
    assert combine_attempts([state], {}) == {"loss": Summary(1, 2.0, 1, 2.0, 1, 2.0, 1)}


def test_the_newest_attempt_has_the_last_word_and_all_count_for_the_extremes() -> None:
    first = summarize((1, {"loss": 5.0}), (2, {"loss": 1.0}), (3, {"loss": 4.0}))
    second = summarize((2, {"loss": 2.0}))
    assert combine_attempts([first, {}, second], {}) == {"loss": Summary(4, 2.0, 2, 1.0, 2, 5.0, 1)}


def test_of_sources_with_one_name_the_better_one_counts() -> None:
    state = summarize((1, {"loss": 5.0}), source="text", pattern="abc")
    add_values(state, "wandb", "", 1, {"loss": 4.0})
    add_values(state, "file", "", 9, {"loss": 3.0})
    assert combine_attempts([state], {})["loss"].last == 4.0
    summaries.remove_series(state, "wandb", "loss")
    assert combine_attempts([state], {})["loss"].last == 5.0


def test_names_of_patterns_are_those_that_users_gave() -> None:
    state = summarize((1, {"loss": 5.0, "time": 2.0}), source="text", pattern="abc")
    add_values(state, "text", "other", 2, {"loss": 7.0})
    assert set(combine_attempts([state], {"abc": {"loss": "train: loss", "time": ""}})) == {"train: loss", "loss"}
    assert combine_attempts([state], {"abc": None}) == {"loss": Summary(1, 7.0, 2, 7.0, 2, 7.0, 2)}
    assert combine_attempts([state], {})["loss"] == Summary(2, 7.0, 2, 5.0, 1, 7.0, 2)


def test_names_with_colons_are_kept_apart() -> None:
    state = summarize((1, {"a:b": 1.0, ":c": 2.0, "d": 3.0}))
    assert set(combine_attempts([state], {})) == {"a:b", ":c", "d"}
    summaries.remove_series(state, "json", "a:b")
    assert set(combine_attempts([state], {})) == {":c", "d"}


def test_further_names_than_500_are_left_out_and_those_that_are_known_stay() -> None:
    first = summarize((1, {f"a{number}": 1.0 for number in range(600)}))
    second = summarize((2, {f"b{number}": 1.0 for number in range(600)}))
    assert (len(first), len(second)) == (500, 500)
    assert set(combine_attempts([first, second], {})) == {f"a{number}" for number in range(500)}
    found = combine_attempts([first, second], {}, {"b3", "b4"})
    assert len(found) == 500
    assert {"b3", "b4"} < set(found)


def test_a_state_is_the_same_after_it_was_stored() -> None:
    state = summarize((1, {"loss": 2**62, "lr": 5e-324}), (2**62, {"loss": -1.5}))
    assert combine_attempts([json.loads(json.dumps(state))], {}) == combine_attempts([state], {})
