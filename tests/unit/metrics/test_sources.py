"""Which values of several sources are one series."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from fermi.metrics.points import Point
from fermi.metrics.sources import HiddenSeries, SourceMerger, agree, canonicalize, find_loss


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (2.31, 2.3097, True), (2.31, 2.3163, False), (2.3, 2.3097, True), (5e-05, 5.04e-05, True),
        (5e-05, 6e-05, False), (4.2, 4.25, True), (4.0, 4.2, True), (0.5, 0.5, True), (1e20, 1.2e21, False),
        (0.0012, 0.00123, True), (4.642857142857143e-05, 4.6428573e-05, True), (0.10623006522, 0.10623006185, True),
        (0.1062301, 0.1062303, False),
    ],
)  # fmt: skip
def test_numbers_agree_to_the_precision_with_which_they_were_printed(one: float, other: float, same: bool) -> None:
    assert agree(one, other) is agree(other, one) is same


@pytest.mark.parametrize(
    ("name", "common"),
    [("train/loss", "loss"), ("Loss", "loss"), ("training_loss", "loss"), ("loss-train", "loss"), ("train", "train"),
     ("summary/train_loss", "loss"), ("val.loss", "val_loss"), ("Val Loss", "val_loss"), ("训练", "训练"),
     ("train_val", "val"), ("charts/episodic_return", "episodic_return"), ("charts", "charts")],
)  # fmt: skip
def test_names_are_compared_without_case_separators_and_train(name: str, common: str) -> None:
    assert canonicalize(name) == common


class Series:
    """A merger whose state is stored after each point, as a cursor's is."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.hidden: list[HiddenSeries] = []

    def add(self, source: str, step: int, **values: float) -> list[str]:
        merger = SourceMerger(self.state)
        found = merger.select_values(source, step, values)
        self.hidden += merger.newly_hidden
        self.state = json.loads(json.dumps(self.state))
        return list(found)


def test_the_same_loss_from_a_line_and_a_tracker_is_one_series() -> None:
    seen = Series()
    assert seen.add("text", 10, loss=2.31, ms=12.0) == ["loss", "ms"]
    assert seen.add("wandb", 10, train_loss=2.3097) == ["train_loss"]
    assert seen.add("text", 20, loss=2.11, ms=12.0) == ["loss", "ms"]
    assert seen.add("wandb", 20, train_loss=2.1103) == ["train_loss"]
    assert seen.hidden == [HiddenSeries("text", "loss")]
    assert seen.add("text", 30, loss=2.05, ms=11.0) == ["ms"], "from now on"


@pytest.mark.parametrize("better", ["wandb", "json"])
def test_the_better_source_is_kept_whichever_came_first(better: str) -> None:
    seen = Series()
    for step in range(4):
        for source in (better, "text"):
            seen.add(source, step, loss=1.5 + step)
    assert seen.hidden == [HiddenSeries("text", "loss")]


def test_a_file_that_is_read_after_all_calls_is_the_same_series() -> None:
    seen = Series()
    for step in range(40):
        seen.add("lightning", step, loss=1.5 + step)
    for step in range(40):
        seen.add("file", step, loss=1.5 + step)
    assert seen.hidden == [HiddenSeries("file", "loss")]


def test_one_match_in_many_digits_is_enough() -> None:
    seen = Series()
    seen.add("transformers", 140, **{"summary/train_loss": 6.123096765790667})
    seen.add("file", 140, **{"train/train_loss": 6.123097})
    assert seen.hidden == [HiddenSeries("file", "train/train_loss")]


def test_of_several_values_at_a_step_any_may_agree() -> None:
    seen = Series()
    for step in (10, 20):
        seen.add("tensorboard", step, reward=15.0 + step)
        seen.add("tensorboard", step, reward=27.0)
        seen.add("text", step, reward=15.0 + step)
    assert seen.hidden == [HiddenSeries("text", "reward")]


def test_one_difference_makes_two_series_for_good() -> None:
    seen = Series()
    pairs: Sequence[tuple[float, float]] = ((1.0, 1.0), (1.0, 2.0), *[(1.0, 1.0)] * 20)
    for step, (one, other) in enumerate(pairs):
        seen.add("wandb", step, loss=one)
        seen.add("text", step, loss=other)
    assert seen.hidden == []
    assert seen.state["pairs"] == {"text:loss wandb:loss": "distinct"}


def test_steps_that_are_counted_differently_are_never_one_series() -> None:
    seen = Series()
    for step in range(30):
        seen.add("wandb", step, loss=1.0)
        seen.add("text", 1000 + step, loss=1.0)
    assert seen.hidden == []


def test_the_state_is_bounded() -> None:
    seen = Series()
    for step in range(3):
        for source in ("text", "wandb", "mlflow", "file", "aim", "comet"):
            seen.add(source, step, loss=1.5, **{f"layer_{n}": 0.5 for n in range(500)})
    assert len(json.dumps(seen.state)) < 200_000


def test_progress_is_of_the_best_source_that_reports_a_loss() -> None:
    merger = SourceMerger({})

    def is_best(source: str, *names: str) -> bool:
        return merger.is_best(Point(1, dict.fromkeys(names, 1.0), None, source))

    assert is_best("text", "ms")
    assert is_best("wandb", "lr"), "it comes before lines for people"
    assert not is_best("text", "ms")
    assert is_best("text", "loss"), "it has a loss"
    assert not is_best("wandb", "lr")
    assert is_best("json", "train_loss")
    assert not is_best("text", "loss")
    assert is_best("wandb", "train/loss")
    assert is_best("wandb", "lr")
    assert not is_best("json", "loss")
    assert find_loss({"lr": 1.0, "train/loss": 2.0}) == "train/loss"


def test_of_several_values_at_one_step_those_that_are_printed_first_are_compared() -> None:
    seen = Series()
    seen.add("text", 100, episodic_return=60.0)  # a second line of the same step is left out
    seen.add("tensorboard", 100, **{"charts/episodic_return": 60.0})
    assert seen.add("tensorboard", 100, **{"charts/episodic_return": 63.0}) == ["charts/episodic_return"]
    seen.add("text", 120, episodic_return=51.0)
    seen.add("tensorboard", 120, **{"charts/episodic_return": 51.0})
    assert seen.hidden == [HiddenSeries("text", "episodic_return")]
    assert seen.add("text", 130, episodic_return=44.0) == []


def test_several_names_that_agree_at_one_step_are_the_same_series() -> None:
    seen = Series()
    seen.add("transformers", 25, **{"summary/train_loss": 6.2957, "summary/train_runtime": 1.9195})
    seen.add("text", 25, train_loss=6.296, train_runtime=1.919)
    assert seen.hidden == [HiddenSeries("text", "train_loss"), HiddenSeries("text", "train_runtime")]
    seen = Series()
    seen.add("wandb", 25, loss=1.0, acc=0.5, lr=0.123)
    seen.add("text", 25, loss=1.0, acc=0.5, lr=0.123)
    assert seen.hidden == [], "one name in few digits may be chance"


LOSSES = (4.1571784019, 4.1670961380, 4.2613682746, 4.1394448280, 4.0149192810)


def test_a_value_that_one_tracker_was_given_no_step_of_is_there_once() -> None:
    seen = Series()
    for place, loss in enumerate(LOSSES):
        seen.add("tensorboard", 100 + 5 * place, train_loss=loss)
        seen.add("mlflow", 1 + 5 * place, train_loss=loss)
        seen.add("text", 320 * place, loss=round(loss, 6))
    assert {*seen.hidden} == {HiddenSeries("mlflow", "train_loss"), HiddenSeries("text", "loss")}
    assert seen.add("mlflow", 31, train_loss=4.0) == []
    assert seen.add("tensorboard", 130, train_loss=4.0) == ["train_loss"]


def test_a_tracker_that_counts_from_1_beside_one_that_counts_from_0_is_no_second_series() -> None:
    seen = Series()
    for step, loss in enumerate(LOSSES):
        seen.add("tensorboard", step, loss=loss)
        seen.add("mlflow", step + 1, loss=loss)
    assert seen.hidden == [HiddenSeries("mlflow", "loss")]


def test_a_tracker_whose_values_are_read_at_the_end_is_no_second_series() -> None:
    seen = Series()
    for place, loss in enumerate(LOSSES):
        seen.add("mlflow", place, loss=loss)
    for place, loss in enumerate(LOSSES):
        seen.add("file", 1000 + place, loss=loss)
    assert seen.hidden == [HiddenSeries("file", "loss")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((0.5, 0.5, 0.5, 0.5, 0.5), (0.5, 0.5, 0.5, 0.5, 0.5)),  # constant
        ((0.12345, 0.12345, 0.12345, 0.12345), (0.12345, 0.12345, 0.12345, 0.12345)),
        ((1.0, 2.0, 3.0, 4.0, 5.0), (1.0, 2.0, 3.0, 4.0, 5.0)),  # counts
        ((4.15717, 4.16709, 4.26136), (4.15717, 4.26136, 4.16709)),  # another order
        ((4.15717, 4.16709), (4.15717, 4.16709)),  # too few
    ],
)
def test_values_at_other_steps_that_may_be_alike_by_chance_are_two_series(one: Any, other: Any) -> None:
    seen = Series()
    for place, values in enumerate(zip(one, other, strict=True)):
        seen.add("tensorboard", place, loss=values[0])
        seen.add("mlflow", 1000 + place, loss=values[1])
    assert seen.hidden == []
