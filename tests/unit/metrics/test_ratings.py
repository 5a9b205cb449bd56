"""Which of several checkpoints is the best."""

import pytest

from fermi.metrics import ratings


def best(parameters: dict[str, object] | None = None, **checkpoints: dict[str, float | None]) -> tuple[str, str] | None:
    return ratings.find_best(checkpoints.items(), ratings.list_quantities(parameters or {}))


def test_the_lowest_loss_of_a_validation_is_best() -> None:
    assert best(b={"val/loss": 2.0, "train/loss": 1.0}, a={"val/loss": 1.5, "train/loss": 3.0}) == ("a", "val/loss")
    assert best(b={"eval_loss": float("nan")}, a={"eval_loss": None}) is None
    assert best(a={"loss": 1.0, "accuracy": 0.5}) is None, "of training"


@pytest.mark.parametrize(
    "name", ["val_acc", "eval/accuracy", "Valid Accuracy", "test_acc1", "val_f1", "eval/mean_reward"]
)
def test_without_a_loss_the_highest_score_is_best(name: str) -> None:
    assert best(b={name: 0.5}, a={name: 0.75}) == ("a", name)


def test_a_loss_comes_before_a_score_and_a_validation_before_a_test() -> None:
    assert best(b={"val_loss": 1.0, "val_acc": 0.5}, a={"val_loss": 2.0, "val_acc": 0.9}) == ("b", "val_loss")
    assert best(b={"test_loss": 9.0, "val_loss": 1.0}, a={"test_loss": 1.0, "val_loss": 2.0}) == ("b", "val_loss")


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"metric_for_best_model": "accuracy"}, "a"),
        ({"metric_for_best_model": "eval_accuracy", "greater_is_better": "True"}, "a"),
        ({"metric_for_best_model": "accuracy", "greater_is_better": "False"}, "b"),
        ({"metric_for_best_model": "eval_loss"}, "b"),
        ({"metric_for_best_model": "None"}, "b"),
        ({"metric_for_best_model": "exact_match"}, "b"),
    ],
)
def test_what_the_script_compares_by_comes_first(parameters: dict[str, object], expected: str) -> None:
    found = best(
        parameters,
        b={"eval_loss": 1.0, "eval_accuracy": 0.5},
        a={"eval_loss": 2.0, "eval_accuracy": 0.9},
    )
    assert found
    assert found[0] == expected


def test_of_equal_ones_the_newest_is_best() -> None:
    assert best(newer={"val_acc": 0.5}, older={"val_acc": 0.5}) == ("newer", "val_acc")
